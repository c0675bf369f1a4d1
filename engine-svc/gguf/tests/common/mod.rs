//! A small valid file, built field by field so that tests can spoil one.

use firstlight_gguf::{BlockFormat, Header, Reason};

/// A file in the making; the defaults are valid.
#[derive(Clone)]
pub struct Draft {
    pub magic: [u8; 4],
    pub version: u32,
    pub tensor_count: Option<u64>,
    pub pair_count: Option<u64>,
    pub pairs: Vec<Vec<u8>>,
    pub tensors: Vec<DraftTensor>,
    pub data_bytes: usize,
}

#[derive(Clone)]
pub struct DraftTensor {
    pub name: Vec<u8>,
    pub dims: Vec<u64>,
    pub dim_count: Option<u32>,
    pub format: u32,
    pub offset: u64,
}

impl Draft {
    /// Two tensors and metadata of every shape.
    pub fn new() -> Self {
        let tensor = |name: &str, dims: &[u64], format: BlockFormat, offset| DraftTensor {
            name: name.into(),
            dims: dims.to_vec(),
            dim_count: None,
            format: format.ggml_id(),
            offset,
        };
        Self {
            magic: *b"GGUF",
            version: 3,
            tensor_count: None,
            pair_count: None,
            pairs: vec![
                pair("general.name", 8, &string(b"tiny")),
                pair("general.alignment", 4, &64_u32.to_le_bytes()),
                pair("tiny.rope", 6, &0.5_f32.to_le_bytes()),
                pair("tiny.negative", 5, &(-3_i32).to_le_bytes()),
                pair("tiny.flag", 7, &[1]),
                pair("tiny.words", 9, &array(8, 2, &[string(b"a"), string("ä".as_bytes())].concat())),
                pair("tiny.nested", 9, &array(9, 1, &array(0, 3, &[1, 2, 3]))),
            ],
            tensors: vec![
                tensor("weight", &[32, 2], BlockFormat::Q8_0, 0),
                tensor("bias", &[2], BlockFormat::F32, 128),
            ],
            data_bytes: 136,
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.magic);
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.pair_count.unwrap_or(self.pairs.len() as u64).to_le_bytes());
        out.extend(self.pairs.concat());
        for tensor in &self.tensors {
            out.extend(string(&tensor.name));
            out.extend(tensor.dim_count.unwrap_or(tensor.dims.len() as u32).to_le_bytes());
            out.extend(tensor.dims.iter().flat_map(|dim| dim.to_le_bytes()));
            out.extend(tensor.format.to_le_bytes());
            out.extend(tensor.offset.to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(64), 0);
        out.extend((0..self.data_bytes).map(|i| i as u8));
        out
    }

    pub fn parse(&self) -> Result<Header, Reason> {
        Header::parse(&self.bytes())
    }
}

pub fn pair(key: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    [&string(key.as_bytes())[..], &kind.to_le_bytes(), value].concat()
}

pub fn string(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text].concat()
}

pub fn array(kind: u32, len: u64, elements: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &len.to_le_bytes(), elements].concat()
}
