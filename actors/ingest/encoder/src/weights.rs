//! Weights of a model's file by their names, each of the shape that is asked for.

use ndarray::{Array1, Array2};
use safetensors::{Dtype, SafeTensors};

/// Weights below a name.
pub(super) struct Weights<'w> {
    file: std::rc::Rc<SafeTensors<'w>>,
    above: String,
}

impl<'w> Weights<'w> {
    /// # Errors
    /// For bytes that are no such file.
    pub(super) fn new(bytes: &'w [u8]) -> Result<Self, String> {
        let file = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
        // Models for other tasks have the encoder below a name of its own.
        let above =
            if file.tensor("bert.embeddings.LayerNorm.bias").is_ok() { "bert." } else { "" };
        Ok(Self { file: std::rc::Rc::new(file), above: above.to_owned() })
    }

    pub(super) fn below(&self, name: &str) -> Self {
        Self { file: self.file.clone(), above: format!("{}{name}.", self.above) }
    }

    /// # Errors
    /// For weights that are not there, or of another shape or form.
    pub(super) fn matrix(&self, name: &str, shape: (usize, usize)) -> Result<Array2<f32>, String> {
        let numbers = self.numbers(name, &[shape.0, shape.1])?;
        Array2::from_shape_vec(shape, numbers).map_err(|error| error.to_string())
    }

    /// # Errors
    /// As [`Self::matrix`].
    pub(super) fn vector(&self, name: &str, length: usize) -> Result<Array1<f32>, String> {
        Ok(Array1::from_vec(self.numbers(name, &[length])?))
    }

    fn numbers(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
        let name = format!("{}{name}", self.above);
        let tensor = self.file.tensor(&name).map_err(|_| format!("`{name}` is not there"))?;
        if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
            let (form, found) = (tensor.dtype(), tensor.shape());
            return Err(format!("`{name}` is {form:?} of {found:?}, not F32 of {shape:?}"));
        }
        let (numbers, _) = tensor.data().as_chunks::<4>();
        Ok(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }
}
