//! What a model is called that has no name but in its configuration and its folder.

use std::path::Path;

use firstlight_hub::ModelId;

/// The name that the configuration was written with, or the folder's; none where both are paths, commits or
/// missing.
pub(super) fn find(written: Option<&str>, folder: &Path) -> Option<String> {
    written.filter(|text| is_name(text)).map(str::to_owned).or_else(|| folder_name(folder))
}

/// Whether this names a model, and not the place on someone's disk where it was trained.
fn is_name(text: &str) -> bool {
    let last = text.rsplit('/').next().unwrap_or(text);
    let one_word = !text.contains(['/', '\\']) && text.starts_with(|c: char| c.is_ascii_alphanumeric());
    (one_word || ModelId::parse(text).is_some()) && !last.starts_with("checkpoint-")
}

/// A folder of the hub's cache is a commit: its repository, `models--OWNER--NAME/snapshots/COMMIT`, has the name.
fn folder_name(folder: &Path) -> Option<String> {
    let name = folder.file_name()?.to_str()?;
    if !is_commit(name) {
        return Some(name.to_owned());
    }
    let repository = folder.parent()?.parent()?.file_name()?.to_str()?;
    Some(repository.strip_prefix("models--")?.replacen("--", "/", 1))
}

fn is_commit(name: &str) -> bool {
    name.len() == 40 && name.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNAPSHOT: &str =
        "/cache/hub/models--HuggingFaceTB--SmolLM2-135M/snapshots/12fd25f77366fa6b3b4b768ec3050bf629380bac";

    fn name(written: &str, folder: &str) -> Option<String> {
        find(Some(written), Path::new(folder))
    }

    #[test]
    fn a_name_in_the_configuration_is_the_name() {
        for written in ["gpt2", "HuggingFaceTB/SmolLM2-135M", "tiny-llama.v2"] {
            assert_eq!(name(written, "/models/current").as_deref(), Some(written));
        }
    }

    #[test]
    fn a_path_in_the_configuration_is_none() {
        for written in
            ["", ".", "./out", "/fsx/train/step-1000", "~/llama", "a/b/c", "out/checkpoint-500", "C:\\m"]
        {
            assert_eq!(name(written, "/models/tiny-llama").as_deref(), Some("tiny-llama"), "{written:?}");
        }
    }

    #[test]
    fn a_snapshot_is_called_as_its_repository() {
        assert_eq!(name("/fsx/train", SNAPSHOT).as_deref(), Some("HuggingFaceTB/SmolLM2-135M"));
        assert_eq!(find(None, Path::new(SNAPSHOT)).as_deref(), Some("HuggingFaceTB/SmolLM2-135M"));
        assert_eq!(find(None, Path::new("/a/b/12fd25f77366fa6b3b4b768ec3050bf629380bac")), None);
    }
}
