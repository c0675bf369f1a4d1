//! Models named by their id on the Hugging Face hub.
//!
//! - [`ModelId`]: `owner/name`, with `@revision` and `:file.gguf` where wanted
//! - [`Hub`]: finds the files of an id, in the cache that all Hugging Face tools share or over the network
//!
//! The environment variables of those tools count here too:
//!
//! - `HF_HOME`: where the cache is, and the token that `hf auth login` left
//! - `HF_TOKEN`: a token for gated and private models, instead of that one
//! - `HF_ENDPOINT`: another hub
//! - `HF_HUB_OFFLINE`: the cache alone

mod fetch;
mod id;

use std::path::{Path, PathBuf};

pub use fetch::{Hub, HubError, Wanted};
pub use id::ModelId;

/// The hub id that `model` is; none where there is such a file or folder, or where it can only be a path.
pub fn id_of(model: &Path) -> Option<ModelId> {
    model.to_str().filter(|_| !model.exists()).and_then(ModelId::parse)
}

/// The path that `model` names: itself when there is such a file or folder or it is no hub id, else where the
/// files of the id lie, fetched if need be. Blocks as long as that takes, with progress on a terminal.
///
/// # Errors
/// See [`HubError`].
pub fn resolve(model: &Path, wanted: Wanted) -> Result<PathBuf, HubError> {
    match id_of(model) {
        Some(id) => Hub::from_env().find(&id, wanted),
        None => Ok(model.to_owned()),
    }
}
