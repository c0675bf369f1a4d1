//! Why a model is refused.

use std::io;
use std::path::PathBuf;

use firstlight_gguf::GgufError;

use super::weight::Weight;

/// A model that cannot be loaded: where, and why.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Neither a file nor a folder.
    #[error(
        "{model}: no such file or folder (a GGUF file, a Hugging Face folder, a hub id as owner/name, or a name with \
         --load-format dummy)"
    )]
    NoSuchModel {
        /// What was named.
        model: String,
    },
    /// No dummy of that name.
    #[error("{name}: no dummy of that name, there are {known}")]
    NoSuchDummy {
        /// What was named.
        name: String,
        /// What there is.
        known: String,
    },
    /// The GGUF file is refused.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A JSON file does not say what it should.
    #[error("{}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A safetensors file is refused.
    #[error("{}: not a sound safetensors file: {source}", path.display())]
    SafeTensors {
        /// The file.
        path: PathBuf,
        /// Why.
        source: safetensors::SafeTensorError,
    },
    /// Something that this engine does not do.
    #[error("{origin}: {what} is not supported")]
    Unsupported {
        /// The file.
        origin: String,
        /// What.
        what: String,
    },
    /// A field of the configuration that makes no sense.
    #[error("{origin}: {field} is {value}: {problem}")]
    Config {
        /// The file.
        origin: String,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A weight that the configuration needs is not there.
    #[error("{origin}: {weight} (tensor {tensor}) is missing")]
    Missing {
        /// The file.
        origin: String,
        /// Which weight.
        weight: Weight,
        /// Its name in the file.
        tensor: String,
    },
    /// A weight of another shape than the configuration says.
    #[error("{origin}: {weight} has the shape {got:?}, the configuration says {want:?}")]
    Shape {
        /// The file.
        origin: String,
        /// Which weight.
        weight: Weight,
        /// Its shape, outermost first.
        got: Vec<usize>,
        /// The shape it should have.
        want: Vec<usize>,
    },
}
