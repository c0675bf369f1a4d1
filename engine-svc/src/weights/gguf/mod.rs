//! A GGUF file as a source of weights.

mod config;
mod names;

use std::path::Path;

use firstlight_gguf::{GgufFile, Reason, Tensor};

use super::config::ModelConfig;
use super::error::LoadError;
use super::weight::Weight;
use super::{Blocks, Matrix, WeightSource};
use names::Place;

/// An open GGUF file of a model this engine runs.
#[derive(Debug)]
pub struct GgufWeights {
    file: GgufFile,
    config: ModelConfig,
}

impl GgufWeights {
    /// Opens a file and reads its configuration.
    ///
    /// # Errors
    /// Names the path and what is wrong.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let file = GgufFile::open(path)?;
        let config = config::read(&file)?;
        Ok(Self { file, config })
    }

    fn place(&self, weight: Weight) -> Place {
        Place::of(weight, &self.config)
    }

    fn tensor(&self, weight: Weight, name: &str) -> Result<Tensor<'_>, LoadError> {
        self.file.tensor(name).ok_or_else(|| LoadError::Missing {
            origin: self.origin(),
            weight,
            tensor: name.to_owned(),
        })
    }
}

impl WeightSource for GgufWeights {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn matrix(&self, weight: Weight) -> Result<Matrix<'_>, LoadError> {
        let Place { name, rows } = self.place(weight);
        let tensor = self.tensor(weight, &format!("{name}.weight"))?;
        let &[outputs, inputs] = &tensor.info.shape[..] else {
            return Err(LoadError::Shape {
                origin: self.origin(),
                weight,
                got: tensor.info.shape.clone(),
                want: vec![self.config.vocab_size, self.config.hidden],
            });
        };
        let rows = rows.unwrap_or(0..outputs);
        if rows.end > outputs {
            return Err(LoadError::Shape {
                origin: self.origin(),
                weight,
                got: vec![outputs, inputs],
                want: vec![rows.end, inputs],
            });
        }
        let first = rows.start;
        let blocks = Blocks { format: tensor.info.format, bytes: tensor.row_bytes(rows.clone()) };
        let matrix = Matrix::new((rows.len(), inputs), move |index, row| {
            tensor.read_rows(first + index..first + index + 1, row);
        });
        Ok(Matrix { blocks: Some(blocks), ..matrix })
    }

    fn bias(&self, weight: Weight) -> Result<Option<Vec<f32>>, LoadError> {
        let Place { name, rows } = self.place(weight);
        let Some(tensor) = self.file.tensor(&format!("{name}.bias")) else { return Ok(None) };
        let values = vector(tensor);
        match rows {
            None => Ok(Some(values)),
            Some(rows) if rows.end <= values.len() => Ok(Some(values[rows].to_vec())),
            Some(rows) => Err(LoadError::Shape {
                origin: self.origin(),
                weight,
                got: vec![values.len()],
                want: vec![rows.end],
            }),
        }
    }

    fn norm(&self, weight: Weight) -> Result<Vec<f32>, LoadError> {
        let name = format!("{}.weight", self.place(weight).name);
        Ok(vector(self.tensor(weight, &name)?))
    }

    fn vocabulary(&self) -> Result<Option<Vec<String>>, LoadError> {
        match self.file.metadata().strs("tokenizer.ggml.tokens") {
            Ok(tokens) => Ok(Some(tokens.into_iter().map(str::to_owned).collect())),
            Err(Reason::MissingKey(_)) => Ok(None),
            Err(reason) => Err(self.file.error(reason).into()),
        }
    }

    fn release_pages(&self) {
        self.file.release_pages();
    }

    fn origin(&self) -> String {
        self.file.path().display().to_string()
    }
}

fn vector(tensor: Tensor<'_>) -> Vec<f32> {
    let rows = tensor.info.len() / tensor.info.row_len();
    let mut values = vec![0.0; tensor.info.len()];
    tensor.read_rows(0..rows, &mut values);
    values
}
