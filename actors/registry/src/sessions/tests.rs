mod churn;
mod life;
mod quota;
mod users;
