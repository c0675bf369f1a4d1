//! Ids of models on the hub.

use std::fmt;

/// `owner/name`, with `@revision` and `:file` where wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelId {
    /// `owner/name`.
    pub repository: String,
    /// A branch, a tag or a commit; `main` when none is named.
    pub revision: String,
    /// The one file that is the model, where the repository holds several.
    pub file: Option<String>,
}

impl ModelId {
    /// Reads an id; `None` of what is none, such as a path with a leading dot or slash.
    pub fn parse(text: &str) -> Option<Self> {
        let (rest, file) = match text.split_once(':') {
            Some((rest, file)) => (rest, Some(file.to_owned())),
            None => (text, None),
        };
        let (repository, revision) = rest.split_once('@').unwrap_or((rest, "main"));
        let (owner, name) = repository.split_once('/')?;
        let part = |part: &str| {
            part.starts_with(|c: char| c.is_ascii_alphanumeric())
                && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        // What a file name could mean as well is left to the file system.
        let is_file = file.is_none() && name.ends_with(".gguf");
        let sound = part(owner) && part(name) && !is_file && !revision.is_empty();
        let inside = file.as_ref().is_none_or(|file| !file.is_empty() && !file.split('/').any(|p| p == ".."));
        (sound && inside).then(|| Self {
            repository: repository.to_owned(),
            revision: revision.to_owned(),
            file,
        })
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.repository, self.revision)?;
        self.file.iter().try_for_each(|file| write!(f, ":{file}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_may_name_a_revision_and_a_file() {
        let id = ModelId::parse("HuggingFaceTB/SmolLM2-135M-Instruct").unwrap();
        assert_eq!((id.revision.as_str(), id.file.as_deref()), ("main", None));
        let id = ModelId::parse("some-one/Some.Model@v2:q4/model.gguf").unwrap();
        assert_eq!((id.repository.as_str(), id.revision.as_str()), ("some-one/Some.Model", "v2"));
        assert_eq!(id.file.as_deref(), Some("q4/model.gguf"));
        assert_eq!(id.to_string(), "some-one/Some.Model@v2:q4/model.gguf");
    }

    #[test]
    fn paths_are_no_ids() {
        for path in
            ["model.gguf", "./a/b", "/a/b", "../a", "a/b/c", "models/x.gguf", "a/", "a/b:../c", "a/b@"]
        {
            assert_eq!(ModelId::parse(path), None, "{path}");
        }
    }
}
