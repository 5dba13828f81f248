//! Layer of the encoder: attention of each token to all, then two linear maps; each added to what it was given
//! and normed.

use ndarray::{Array1, Array2, Axis, Slice, Zip};

use super::files::{BertSettings, Weights};

/// Linear map with a bias.
struct Linear {
    /// Outputs by inputs.
    weight: Array2<f32>,
    bias: Array1<f32>,
}

impl Linear {
    fn read(weights: &Weights<'_>, outputs: usize, inputs: usize) -> Result<Self, String> {
        let (weight, bias) =
            (weights.matrix("weight", (outputs, inputs))?, weights.vector("bias", outputs)?);
        Ok(Self { weight, bias })
    }

    fn apply(&self, state: &Array2<f32>) -> Array2<f32> {
        let mut mapped = state.dot(&self.weight.t());
        mapped += &self.bias;
        mapped
    }
}

/// Norm of each row, with a gain and a bias.
pub(super) struct LayerNorm {
    gain: Array1<f32>,
    bias: Array1<f32>,
    epsilon: f32,
}

impl LayerNorm {
    pub(super) fn read(weights: &Weights<'_>, settings: &BertSettings) -> Result<Self, String> {
        let (gain, bias) = (
            weights.vector("weight", settings.hidden_size)?,
            weights.vector("bias", settings.hidden_size)?,
        );
        Ok(Self { gain, bias, epsilon: settings.layer_norm_eps })
    }

    pub(super) fn apply(&self, state: &mut Array2<f32>) {
        for mut row in state.rows_mut() {
            let mean = row.sum() / row.len() as f32;
            row -= mean;
            let scale = 1.0 / (row.dot(&row) / row.len() as f32 + self.epsilon).sqrt();
            Zip::from(&mut row).and(&self.gain).and(&self.bias).for_each(|it, gain, bias| {
                *it = *it * scale * gain + bias;
            });
        }
    }
}

/// See the module.
pub(super) struct Layer {
    heads: usize,
    query: Linear,
    key: Linear,
    value: Linear,
    attended: Linear,
    attended_norm: LayerNorm,
    wide: Linear,
    narrow: Linear,
    norm: LayerNorm,
}

impl Layer {
    pub(super) fn read(weights: &Weights<'_>, settings: &BertSettings) -> Result<Self, String> {
        let (hidden, wide) = (settings.hidden_size, settings.intermediate_size);
        let linear = |name, outputs, inputs| Linear::read(&weights.below(name), outputs, inputs);
        let norm = |name| LayerNorm::read(&weights.below(name), settings);
        Ok(Self {
            heads: settings.num_attention_heads,
            query: linear("attention.self.query", hidden, hidden)?,
            key: linear("attention.self.key", hidden, hidden)?,
            value: linear("attention.self.value", hidden, hidden)?,
            attended: linear("attention.output.dense", hidden, hidden)?,
            attended_norm: norm("attention.output.LayerNorm")?,
            wide: linear("intermediate.dense", wide, hidden)?,
            narrow: linear("output.dense", hidden, wide)?,
            norm: norm("output.LayerNorm")?,
        })
    }

    pub(super) fn apply(&self, state: Array2<f32>) -> Array2<f32> {
        let mut attended = self.attended.apply(&self.attention(&state));
        attended += &state;
        self.attended_norm.apply(&mut attended);
        let mut wide = self.wide.apply(&attended);
        wide.mapv_inplace(gelu);
        let mut mapped = self.narrow.apply(&wide);
        mapped += &attended;
        self.norm.apply(&mut mapped);
        mapped
    }

    fn attention(&self, state: &Array2<f32>) -> Array2<f32> {
        let [query, key, value] =
            [&self.query, &self.key, &self.value].map(|linear| linear.apply(state));
        let size = state.ncols() / self.heads;
        let mut attended = Array2::zeros(state.dim());
        for head in 0..self.heads {
            let part = Slice::from(head * size..(head + 1) * size);
            let [query, key, value] =
                [&query, &key, &value].map(|state| state.slice_axis(Axis(1), part));
            let mut shares = query.dot(&key.t());
            shares /= (size as f32).sqrt();
            softmax(&mut shares);
            attended.slice_axis_mut(Axis(1), part).assign(&shares.dot(&value));
        }
        attended
    }
}

/// Has each row be positive and its sum 1.
fn softmax(state: &mut Array2<f32>) {
    for mut row in state.rows_mut() {
        let most = row.fold(f32::MIN, |most, it| most.max(*it));
        row.mapv_inplace(|it| (it - most).exp());
        let sum = row.sum();
        row /= sum;
    }
}

fn gelu(it: f32) -> f32 {
    0.5 * it * (1.0 + libm::erff(it * std::f32::consts::FRAC_1_SQRT_2))
}
