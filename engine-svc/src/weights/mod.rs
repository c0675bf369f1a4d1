//! Where weights come from: one view over GGUF files, Hugging Face folders and random numbers.
//!
//! * [`open`]: the source behind a path or a dummy's name
//! * [`WeightSource`]: what the model asks of it, row by row, so that no second copy is made
//! * [`config`]: what kind of model it is
//! * [`weight`]: the names of weights
//! * [`gguf`], [`hf`], [`dummy`]: the sources
//! * [`error`]: why a model is refused

pub mod config;
pub mod dummy;
pub mod error;
pub mod gguf;
pub mod hf;
mod rope;
pub mod weight;

use std::fmt;
use std::path::Path;

use clap::ValueEnum;
use firstlight_gguf::BlockFormat;

pub use config::ModelConfig;
pub use error::LoadError;
pub use weight::{LayerWeight, Weight};

/// The weights of one model.
pub trait WeightSource: Sync {
    /// What kind of model it is.
    fn config(&self) -> &ModelConfig;

    /// A matrix, `[outputs, inputs]`.
    ///
    /// # Errors
    /// When it is missing or its format cannot be read.
    fn matrix(&self, weight: Weight) -> Result<Matrix<'_>, LoadError>;

    /// The bias beside a matrix or a norm, if there is one.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    fn bias(&self, weight: Weight) -> Result<Option<Vec<f32>>, LoadError>;

    /// The scale of a norm.
    ///
    /// # Errors
    /// When it is missing or cannot be read.
    fn norm(&self, weight: Weight) -> Result<Vec<f32>, LoadError>;

    /// Token strings in the order of their ids, where the source brings a vocabulary.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    fn vocabulary(&self) -> Result<Option<Vec<String>>, LoadError>;

    /// Gives back the memory of file pages read so far; what is read again is fetched again.
    fn release_pages(&self) {}

    /// Where the weights lie, for messages.
    fn origin(&self) -> String;
}

/// A matrix that is read by rows, from any thread.
pub struct Matrix<'a> {
    /// Number of rows, N.
    pub outputs: usize,
    /// Values per row, K.
    pub inputs: usize,
    read: Box<ReadRow<'a>>,
    /// The rows as the file has them, where that is in blocks.
    pub blocks: Option<Blocks<'a>>,
}

/// Writes the row of an index.
type ReadRow<'a> = dyn Fn(usize, &mut [f32]) + Sync + 'a;

/// Rows as a GGUF file has them.
#[derive(Debug, Clone, Copy)]
pub struct Blocks<'a> {
    /// How values are stored.
    pub format: BlockFormat,
    /// All rows, one after another.
    pub bytes: &'a [u8],
}

impl<'a> Matrix<'a> {
    /// A matrix whose row `index` is what `read(index, row)` writes.
    pub fn new((outputs, inputs): (usize, usize), read: impl Fn(usize, &mut [f32]) + Sync + 'a) -> Self {
        Self { outputs, inputs, read: Box::new(read), blocks: None }
    }

    /// Writes row `index` to `row`.
    ///
    /// # Panics
    /// When there is no such row, or `row` has another length.
    pub fn read(&self, index: usize, row: &mut [f32]) {
        assert!(index < self.outputs && row.len() == self.inputs, "row {index} of {self:?}");
        (self.read)(index, row);
    }
}

impl fmt::Debug for Matrix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}]", self.outputs, self.inputs)
    }
}

/// How to read what `--model` names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LoadFormat {
    /// Look at the path: a file is GGUF, a folder is Hugging Face.
    #[default]
    Auto,
    /// A GGUF file.
    Gguf,
    /// A Hugging Face folder: config.json and *.safetensors.
    Hf,
    /// Random weights in the shape of a named configuration: gpt2, smollm2-135m.
    Dummy,
}

/// Opens the weights that `model` names: a path, or for dummies a configuration's name; `seed` is the dummies'.
///
/// # Errors
/// Names the path and what is wrong there.
pub fn open(model: &str, format: LoadFormat, seed: u64) -> Result<Box<dyn WeightSource>, LoadError> {
    let path = Path::new(model);
    match format {
        LoadFormat::Dummy => Ok(Box::new(dummy::DummyWeights::new(model, seed)?)),
        LoadFormat::Gguf => Ok(Box::new(gguf::GgufWeights::open(path)?)),
        LoadFormat::Hf => Ok(Box::new(hf::HfWeights::open(path)?)),
        LoadFormat::Auto if path.is_dir() => open(model, LoadFormat::Hf, seed),
        LoadFormat::Auto if path.exists() => open(model, LoadFormat::Gguf, seed),
        LoadFormat::Auto => Err(LoadError::NoSuchModel { model: model.to_owned() }),
    }
}
