mod life;
mod quota;
