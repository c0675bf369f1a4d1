//! A Hugging Face folder as a source of weights: `config.json` and safetensors, whole or in shards.

mod config;
mod model_name;
mod names;
mod safetensors_file;
mod vocabulary;

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::config::ModelConfig;
use super::error::LoadError;
use super::weight::Weight;
use super::{Matrix, WeightSource};
use names::{Place, Prefix};
use safetensors_file::{SafeTensorsFile, Stored};

/// An open folder of a model this engine runs.
#[derive(Debug)]
pub struct HfWeights {
    folder: PathBuf,
    files: Vec<SafeTensorsFile>,
    file_of: HashMap<String, usize>,
    prefix: Prefix,
    config: ModelConfig,
}

impl HfWeights {
    /// Opens a folder and reads its configuration.
    ///
    /// # Errors
    /// Names the file and what is wrong.
    pub fn open(folder: &Path) -> Result<Self, LoadError> {
        let config = config::read(folder)?;
        let mut files = Vec::new();
        let mut file_of = HashMap::new();
        for path in shard_paths(folder)? {
            let file = SafeTensorsFile::open(&path)?;
            file_of.extend(file.names().into_iter().map(|name| (name, files.len())));
            files.push(file);
        }
        let prefix = Prefix::found_in(|name| file_of.contains_key(name));
        Ok(Self { folder: folder.to_owned(), files, file_of, prefix, config })
    }

    fn place(&self, weight: Weight) -> Place {
        Place::of(weight, &self.config, self.prefix)
    }

    fn tensor(&self, name: &str) -> Result<Option<Stored<'_>>, LoadError> {
        match self.file_of.get(name) {
            Some(&file) => self.files[file].tensor(name),
            None => Ok(None),
        }
    }

    fn required(&self, weight: Weight, name: String) -> Result<Stored<'_>, LoadError> {
        let missing = || LoadError::Missing { origin: self.origin(), weight, tensor: name.clone() };
        self.tensor(&name)?.ok_or_else(missing)
    }

    fn wrong_shape(&self, weight: Weight, got: &[usize], want: Vec<usize>) -> LoadError {
        LoadError::Shape { origin: self.origin(), weight, got: got.to_vec(), want }
    }
}

impl WeightSource for HfWeights {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn matrix(&self, weight: Weight) -> Result<Matrix<'_>, LoadError> {
        let Place { name, outputs, transposed } = self.place(weight);
        let stored = self.required(weight, format!("{name}.weight"))?;
        let &[first, second] = &stored.shape[..] else {
            return Err(self.wrong_shape(weight, &stored.shape, vec![0, 0]));
        };
        let (rows, inputs) = if transposed { (second, first) } else { (first, second) };
        let outputs = outputs.unwrap_or(0..rows);
        if outputs.end > rows {
            return Err(self.wrong_shape(weight, &[rows, inputs], vec![outputs.end, inputs]));
        }
        let offset = outputs.start;
        let shape = (outputs.len(), inputs);
        Ok(if transposed {
            Matrix::new(shape, move |index, row| {
                for (input, value) in row.iter_mut().enumerate() {
                    let at = input * rows + offset + index;
                    stored.read(at..at + 1, std::slice::from_mut(value));
                }
            })
        } else {
            Matrix::new(shape, move |index, row| {
                let at = (offset + index) * inputs;
                stored.read(at..at + inputs, row);
            })
        })
    }

    fn bias(&self, weight: Weight) -> Result<Option<Vec<f32>>, LoadError> {
        let Place { name, outputs, .. } = self.place(weight);
        let Some(stored) = self.tensor(&format!("{name}.bias"))? else { return Ok(None) };
        let values = vector(&stored);
        match outputs {
            None => Ok(Some(values)),
            Some(outputs) if outputs.end <= values.len() => Ok(Some(values[outputs].to_vec())),
            Some(outputs) => Err(self.wrong_shape(weight, &stored.shape, vec![outputs.end])),
        }
    }

    fn norm(&self, weight: Weight) -> Result<Vec<f32>, LoadError> {
        let name = self.place(weight).name;
        Ok(vector(&self.required(weight, format!("{name}.weight"))?))
    }

    fn vocabulary(&self) -> Result<Option<Vec<String>>, LoadError> {
        vocabulary::read(&self.folder.join("tokenizer.json"))
    }

    fn release_pages(&self) {
        self.files.iter().for_each(SafeTensorsFile::release_pages);
    }

    fn origin(&self) -> String {
        self.folder.display().to_string()
    }
}

fn vector(stored: &Stored<'_>) -> Vec<f32> {
    let len = stored.shape.iter().product();
    let mut values = vec![0.0; len];
    stored.read(0..len, &mut values);
    values
}

/// `model.safetensors`, or the shards that `model.safetensors.index.json` names.
fn shard_paths(folder: &Path) -> Result<Vec<PathBuf>, LoadError> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: HashMap<String, String>,
    }
    let index_path = folder.join("model.safetensors.index.json");
    if !index_path.exists() {
        return Ok(vec![folder.join("model.safetensors")]);
    }
    let index: Index = read_json(&index_path)?;
    let mut names: Vec<String> = index.weight_map.into_values().collect();
    names.sort_unstable();
    names.dedup();
    match names.iter().find(|name| Path::new(name).file_name() != Some(name.as_ref())) {
        Some(name) => Err(LoadError::Unsupported {
            origin: index_path.display().to_string(),
            what: format!("shard {name}, which is not a file of this folder,"),
        }),
        None => Ok(names.into_iter().map(|name| folder.join(name)).collect()),
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, LoadError> {
    let file = File::open(path).map_err(|source| LoadError::Io { path: path.to_owned(), source })?;
    serde_json::from_reader(BufReader::new(file))
        .map_err(|source| LoadError::Json { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use firstlight_hub::Wanted;

    /// What of this loader reads files by name.
    const SOURCES: [&str; 3] =
        [include_str!("mod.rs"), include_str!("config.rs"), include_str!("vocabulary.rs")];

    #[test]
    fn every_file_that_is_read_is_fetched_for_a_hub_id() {
        let joined = SOURCES.iter().flat_map(|source| source.split("join(\"").skip(1));
        let read: BTreeSet<&str> = joined.filter_map(|rest| Some(rest.split_once('"')?.0)).collect();
        assert!(read.contains("config.json") && read.contains("generation_config.json"), "{read:?}");
        for file in read {
            assert!(Wanted::Model.includes(file), "{file} is read and not fetched");
        }
    }
}
