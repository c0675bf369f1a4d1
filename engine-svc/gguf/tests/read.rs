//! What a valid file says is what is read.

mod common;

use std::path::Path;

use common::Draft;
use firstlight_gguf::{BlockFormat, GgufFile, Reason, Value};

/// Written by tests/golden/gguf_files.py: a tensor `[3, 512]` per format, and what the Python package `gguf`
/// reads from them, in the same order.
#[test]
fn blocks_have_the_values_the_reference_reads() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/gguf");
    let file = GgufFile::open(&fixtures.join("types.gguf")).unwrap();
    let expected = std::fs::read(fixtures.join("types.f32")).unwrap();
    let expected: Vec<f32> = expected.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let tensors: Vec<_> = file.tensors().collect();
    assert_eq!(tensors.len(), BlockFormat::ALL.len());
    for (tensor, want) in tensors.iter().zip(expected.chunks_exact(3 * 512)) {
        let mut got = vec![0.0; tensor.info.len()];
        tensor.read_rows(0..3, &mut got);
        assert_eq!(got, want, "{}", tensor.info.name);
        assert!(want.iter().any(|value| *value != 0.0));

        let mut row = vec![0.0; 512];
        tensor.read_rows(1..2, &mut row);
        assert_eq!(row, want[512..1024], "row 1 of {}", tensor.info.name);
    }
}

#[test]
fn every_format_is_in_the_fixture() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/gguf");
    let file = GgufFile::open(&fixtures.join("types.gguf")).unwrap();
    for format in BlockFormat::ALL {
        let name = format!("{}.weight", format.name());
        assert_eq!(file.tensor(&name).map(|tensor| tensor.info.format), Some(format), "{name}");
    }
}

#[test]
fn metadata_is_read_by_type() {
    let bytes = Draft::new().bytes();
    let header = Draft::new().parse().unwrap();
    let metadata = header.metadata.view(&bytes);
    assert_eq!(metadata.str("general.name").unwrap(), "tiny");
    assert_eq!(metadata.unsigned("general.alignment").unwrap(), 64);
    assert_eq!(metadata.float("tiny.rope").unwrap(), 0.5);
    assert!(metadata.bool("tiny.flag").unwrap());
    assert_eq!(metadata.strs("tiny.words").unwrap(), ["a", "ä"]);
    let Some(Value::Array(outer)) = metadata.get("tiny.nested") else { panic!("not an array") };
    let Some(Value::Array(inner)) = outer.iter().next() else { panic!("not nested") };
    let values: Vec<Value> = inner.iter().collect();
    assert_eq!(values, [Value::Unsigned(1), Value::Unsigned(2), Value::Unsigned(3)]);
}

#[test]
fn metadata_of_another_type_is_an_error_that_names_the_key() {
    let bytes = Draft::new().bytes();
    let header = Draft::new().parse().unwrap();
    let metadata = header.metadata.view(&bytes);
    assert!(matches!(metadata.str("absent"), Err(Reason::MissingKey(key)) if key == "absent"));
    assert!(matches!(metadata.unsigned("tiny.negative"), Err(Reason::WrongType { .. })));
    assert!(matches!(metadata.unsigneds("tiny.words"), Err(Reason::WrongType { .. })));
    assert!(matches!(metadata.float("general.name"), Err(Reason::WrongType { .. })));
}

#[test]
fn a_shape_is_outermost_first() {
    let header = Draft::new().parse().unwrap();
    assert_eq!(header.tensor("weight").unwrap().shape, [2, 32]);
    assert!(header.tensor("absent").is_none());
}
