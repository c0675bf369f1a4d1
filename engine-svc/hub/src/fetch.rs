//! Finds the files of an id: over the network, or in the cache when the network is not there.

use std::path::{Path, PathBuf};

use hf_hub::{
    Cache, Repo, RepoType,
    api::sync::{ApiBuilder, ApiError, ApiRepo},
};

use crate::id::ModelId;

/// Which files of a repository are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All that an engine reads: weights, configuration and vocabulary.
    Model,
    /// What a tokenizer is made of.
    Tokenizer,
}

impl Wanted {
    /// Whether a file of this name is one of them, in a repository that has it.
    pub fn includes(self, file: &str) -> bool {
        match self {
            Self::Model => {
                file.ends_with(".safetensors") || FOR_MODEL.contains(&file) || FOR_BOTH.contains(&file)
            }
            Self::Tokenizer => FOR_BOTH.contains(&file),
        }
    }
}

/// Small files that only an engine reads where they are there.
const FOR_MODEL: [&str; 1] = ["generation_config.json"];
/// Small files that either side reads where they are there.
const FOR_BOTH: [&str; 5] =
    ["config.json", "model.safetensors.index.json", "tokenizer.json", "vocab.json", "merges.txt"];

/// Files that an id names could not be had.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// Not in the cache, and the network is not to be used or does not answer.
    #[error(
        "{id}: not in the cache {}, and {why}. Fetch it where the hub can be reached (`hf download {}`) and pass \
         the folder as --model, or let HF_HOME name a cache that holds it",
        cache.display(), id.repository
    )]
    NotToBeHad {
        /// The id.
        id: ModelId,
        /// The cache.
        cache: PathBuf,
        /// What the network said.
        why: String,
    },
    /// The hub has no such repository or revision, or does not show it to us.
    #[error("{id}: the hub answers {status} ({hint})")]
    Refused {
        /// The id.
        id: ModelId,
        /// The HTTP status.
        status: u16,
        /// What may be the reason.
        hint: &'static str,
    },
    /// The repository has no model that can be read, or several.
    #[error("{id}: {what}")]
    NoModel {
        /// The id.
        id: ModelId,
        /// What is there instead.
        what: String,
    },
}

/// The hub and the cache in front of it.
pub struct Hub {
    cache: Cache,
    endpoint: Option<String>,
    offline: bool,
    token: Option<String>,
}

impl Hub {
    /// As the environment variables of Hugging Face's own tools say.
    pub fn from_env() -> Self {
        let set = |name: &str| {
            let value = std::env::var(name).ok()?.trim().to_owned();
            (!value.is_empty()).then_some(value)
        };
        Self {
            cache: Cache::from_env(),
            endpoint: set("HF_ENDPOINT"),
            offline: set("HF_HUB_OFFLINE").is_some_and(|value| value != "0"),
            token: set("HF_TOKEN"),
        }
    }

    /// With a cache folder, and a server in place of the public one (`None`: none at all).
    pub fn new(cache: &Path, endpoint: Option<String>) -> Self {
        Self { cache: Cache::new(cache.to_owned()), offline: endpoint.is_none(), endpoint, token: None }
    }

    /// With a token instead of the one that `hf auth login` left beside the cache.
    #[must_use]
    pub fn with_token(self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self }
    }

    /// Where the wanted files of `id` lie: a folder, or the file where the model is one. What the cache holds
    /// already is not fetched again; without network, the cache has to do.
    ///
    /// # Errors
    /// See [`HubError`].
    pub fn find(&self, id: &ModelId, wanted: Wanted) -> Result<PathBuf, HubError> {
        let why = match self.fetch(id, wanted) {
            Ok(path) => return Ok(path),
            Err(Unfetched::Refused(error)) => return Err(error),
            Err(Unfetched::Unreachable(why)) => why,
        };
        let cached = self.cached(id, wanted);
        if let Some(path) = &cached {
            tracing::warn!(%id, path = %path.display(), "{why}; taking the model from the cache");
        }
        cached.ok_or_else(|| HubError::NotToBeHad { id: id.clone(), cache: self.cache.path().clone(), why })
    }

    fn fetch(&self, id: &ModelId, wanted: Wanted) -> Result<PathBuf, Unfetched> {
        if self.offline {
            return Err(Unfetched::Unreachable("HF_HUB_OFFLINE is set".to_owned()));
        }
        let mut api = ApiBuilder::from_cache(self.cache.clone()).with_retries(3);
        if let Some(endpoint) = &self.endpoint {
            api = api.with_endpoint(endpoint.trim_end_matches('/').to_owned());
        }
        if self.token.is_some() {
            api = api.with_token(self.token.clone());
        }
        let api = api.build().map_err(|e| unfetched(id, e))?;
        let repository = api.repo(repo(id));
        let info = repository.info().map_err(|e| unfetched(id, e))?;
        let files: Vec<_> = info.siblings.into_iter().map(|file| file.rfilename).collect();
        let chosen = choose(id, &files, wanted).map_err(Unfetched::Refused)?;
        tracing::info!(%id, files = chosen.len(), "looking for the model in the cache and on the hub");
        let paths: Vec<_> = chosen.iter().map(|file| get(&repository, id, file)).collect::<Result<_, _>>()?;
        Ok(model_path(id, &paths[0], &chosen[0]))
    }

    /// What an earlier run left; only a model whose every part is there counts.
    fn cached(&self, id: &ModelId, wanted: Wanted) -> Option<PathBuf> {
        let cache = self.cache.repo(repo(id));
        if let Some(file) = &id.file {
            return cache.get(file);
        }
        let folder = cache.get("config.json")?.parent()?.to_owned();
        let shards = match std::fs::read_to_string(folder.join("model.safetensors.index.json")) {
            Ok(index) => shards(&index)?,
            Err(_) => vec!["model.safetensors".to_owned()],
        };
        let needed = if wanted == Wanted::Model { shards } else { Vec::new() };
        needed.iter().all(|file| folder.join(file).exists()).then_some(folder)
    }
}

/// Why the network gave nothing.
enum Unfetched {
    /// It answered, and that is final.
    Refused(HubError),
    /// It did not answer.
    Unreachable(String),
}

fn repo(id: &ModelId) -> Repo {
    Repo::with_revision(id.repository.clone(), RepoType::Model, id.revision.clone())
}

fn get(repository: &ApiRepo, id: &ModelId, file: &str) -> Result<PathBuf, Unfetched> {
    repository.get(file).map_err(|e| unfetched(id, e))
}

/// The files of `id` to fetch, at least one.
fn choose(id: &ModelId, files: &[String], wanted: Wanted) -> Result<Vec<String>, HubError> {
    let no_model = |what: String| HubError::NoModel { id: id.clone(), what };
    if let Some(file) = &id.file {
        let found = files.contains(file);
        return if found { Ok(vec![file.clone()]) } else { Err(no_model(format!("it has no file {file}"))) };
    }
    if files.iter().any(|file| file == "config.json")
        && files.iter().any(|file| file.ends_with(".safetensors"))
    {
        // config.json first: its folder is the model's.
        let rest = files
            .iter()
            .filter(|file| *file != "config.json" && wanted.includes(file) && !file.contains('/'));
        return Ok(std::iter::once("config.json".to_owned()).chain(rest.cloned()).collect());
    }
    let ggufs: Vec<_> = files.iter().filter(|file| file.ends_with(".gguf")).cloned().collect();
    match ggufs.as_slice() {
        [] => Err(no_model("it holds neither config.json with *.safetensors nor a GGUF file".to_owned())),
        [one] => Ok(vec![one.clone()]),
        several => Err(no_model(format!(
            "it holds several GGUF files, name one as {id}:FILE: {}",
            several.join(", ")
        ))),
    }
}

/// A model in several files is named by its folder.
fn model_path(id: &ModelId, first: &Path, chosen: &str) -> PathBuf {
    match chosen == "config.json" && id.file.is_none() {
        true => first.parent().unwrap_or(first).to_owned(),
        false => first.to_owned(),
    }
}

/// File names in an index of sharded weights.
fn shards(index: &str) -> Option<Vec<String>> {
    let index: serde_json::Value = serde_json::from_str(index).ok()?;
    let files = index.get("weight_map")?.as_object()?.values();
    files.map(|file| file.as_str().map(str::to_owned)).collect()
}

fn unfetched(id: &ModelId, error: ApiError) -> Unfetched {
    match status(&error) {
        Some(status @ (401 | 403)) => Unfetched::Refused(HubError::Refused {
            id: id.clone(),
            status,
            hint: "no such model, or it is gated: log in with `hf auth login`, or set HF_TOKEN",
        }),
        Some(404) => Unfetched::Refused(HubError::Refused {
            id: id.clone(),
            status: 404,
            hint: "no such model, revision or file",
        }),
        _ => Unfetched::Unreachable(format!("the hub cannot be reached: {error}")),
    }
}

fn status(error: &ApiError) -> Option<u16> {
    match error {
        ApiError::RequestError(error) => match &**error {
            ureq::Error::Status(status, _) => Some(*status),
            ureq::Error::Transport(_) => None,
        },
        ApiError::TooManyRetries(inner) => status(inner),
        _ => None,
    }
}
