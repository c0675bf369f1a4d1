//! What a valid file says is what is read.

mod common;

use std::path::Path;

use common::Draft;
use firstlight_gguf::{BlockFormat, GgufFile, Reason, Value};

#[test]
fn blocks_have_the_values_the_reference_reads() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/blocks.gguf");
    let file = GgufFile::open(&path).unwrap();
    for format in BlockFormat::ALL {
        let blocks = file.tensor(format.name()).unwrap();
        assert_eq!(blocks.info.format, format);
        let expected = file.tensor(&format!("{}.values", format.name())).unwrap();
        let (mut got, mut want) = (vec![0.0; blocks.info.len()], vec![0.0; blocks.info.len()]);
        blocks.read_rows(0..3, &mut got);
        expected.read_rows(0..3, &mut want);
        assert_eq!(got, want, "{}", format.name());
        assert!(want.iter().any(|value| *value != 0.0));

        let mut row = vec![0.0; blocks.info.row_len()];
        blocks.read_rows(1..2, &mut row);
        assert_eq!(row, want[512..1024], "row 1 of {}", format.name());
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
