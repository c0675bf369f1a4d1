//! A file that lies is refused with a reason: no panic, no allocation that its bytes do not back.

mod common;

use common::{Draft, array, pair, string};
use firstlight_gguf::{GgufFile, Header, Reason};
use proptest::prelude::*;

/// The reason a draft is refused after one change.
fn refusal(change: impl FnOnce(&mut Draft)) -> Reason {
    let mut draft = Draft::new();
    change(&mut draft);
    draft.parse().expect_err("the change makes the file invalid")
}

#[test]
fn every_truncation_is_refused() {
    let bytes = Draft::new().bytes();
    Header::parse(&bytes).unwrap();
    for len in 0..bytes.len() {
        assert!(Header::parse(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
    }
}

#[test]
fn magic_and_version_are_checked() {
    assert!(matches!(refusal(|d| d.magic = *b"GGML"), Reason::NotGguf));
    for version in [0, 1, 4, 3_u32.swap_bytes()] {
        assert!(matches!(refusal(|d| d.version = version), Reason::Version(v) if v == version));
    }
}

#[test]
fn absurd_counts_are_refused_before_anything_is_read() {
    for count in [1 << 20, u64::MAX / 32, u64::MAX] {
        let reason = refusal(|d| d.tensor_count = Some(count));
        assert!(matches!(reason, Reason::Truncated { at: 24, .. }), "{reason}");
        let reason = refusal(|d| d.pair_count = Some(count));
        assert!(matches!(reason, Reason::Truncated { at: 24, .. }), "{reason}");
    }
}

#[test]
fn absurd_lengths_of_strings_and_arrays_are_refused() {
    for len in [1 << 20, u64::MAX / 8 + 1, u64::MAX] {
        let long_string = [&len.to_le_bytes()[..], b"a"].concat();
        for (kind, value) in [(8, long_string), (9, array(8, len, b"")), (9, array(10, len, b""))] {
            let reason = refusal(|d| d.pairs.push(pair("long", kind, &value)));
            assert!(matches!(&reason, Reason::Truncated { what, .. } if what.contains("long")), "{reason}");
        }
    }
}

#[test]
fn metadata_of_no_known_type_is_refused() {
    let reason = refusal(|d| d.pairs.push(pair("odd", 13, &[0; 8])));
    assert!(matches!(reason, Reason::ValueType { id: 13, .. }));
    let reason = refusal(|d| d.pairs.push(pair("odd", 9, &array(99, 1, &[0; 8]))));
    assert!(matches!(reason, Reason::ValueType { id: 99, .. }));
    let reason = refusal(|d| d.pairs.push(pair("odd", 7, &[2])));
    assert!(matches!(reason, Reason::Bool { byte: 2, .. }));
    let reason = refusal(|d| d.pairs.push(pair("odd", 8, &string(&[0xff]))));
    assert!(matches!(reason, Reason::NotUtf8 { .. }));
}

#[test]
fn arrays_nested_without_end_are_refused() {
    let value = (0..1000).fold(array(0, 0, b""), |inner, _| array(9, 1, &inner));
    let reason = refusal(|d| d.pairs.push(pair("deep", 9, &value)));
    assert!(matches!(reason, Reason::Nesting { .. }));
}

#[test]
fn a_name_that_appears_twice_is_refused() {
    let reason = refusal(|d| d.pairs.push(d.pairs[0].clone()));
    assert!(matches!(&reason, Reason::Duplicate { what } if what.contains("general.name")));
    let reason = refusal(|d| d.tensors[1].name = b"weight".to_vec());
    assert!(matches!(&reason, Reason::Duplicate { what } if what.contains("weight")));
}

#[test]
fn an_alignment_that_is_no_power_of_two_is_refused() {
    for alignment in [0, 48, 1 << 17, u32::MAX] {
        let value = alignment.to_le_bytes();
        let reason = refusal(|d| d.pairs[1] = pair("general.alignment", 4, &value));
        assert!(matches!(reason, Reason::Alignment(a) if a == u64::from(alignment)));
    }
    let reason = refusal(|d| d.pairs[1] = pair("general.alignment", 8, &string(b"64")));
    assert!(matches!(reason, Reason::WrongType { .. }));
}

#[test]
fn tensor_dimensions_are_checked() {
    for dims in [vec![], vec![1; 5], vec![32, 0]] {
        let reason = refusal(|d| d.tensors[0].dims = dims);
        assert!(matches!(reason, Reason::Dimensions { .. }), "{reason}");
    }
    let reason = refusal(|d| d.tensors[1].dim_count = Some(u32::MAX));
    assert!(matches!(reason, Reason::Dimensions { .. }), "{reason}");
    for dims in [vec![u64::MAX], vec![1 << 32, 1 << 32], vec![1 << 62, 3, 1, 1]] {
        let reason = refusal(|d| d.tensors[1].dims = dims);
        assert!(matches!(reason, Reason::Overflow { .. }), "{reason}");
    }
    let reason = refusal(|d| d.tensors[1].dims = vec![1 << 40]);
    assert!(matches!(reason, Reason::Truncated { .. }), "{reason}");
    let reason = refusal(|d| d.tensors[0].dims = vec![31, 2]);
    assert!(matches!(reason, Reason::Ragged { row: 31, block: 32, .. }), "{reason}");
}

#[test]
fn formats_that_cannot_be_read_are_named() {
    let reason = refusal(|d| d.tensors[0].format = 10);
    assert_eq!(reason.to_string(), "tensor weight has the format 10 (Q2_K), which is not supported");
    assert!(matches!(refusal(|d| d.tensors[0].format = u32::MAX), Reason::Format { .. }));
}

#[test]
fn tensor_offsets_are_checked() {
    let reason = refusal(|d| d.tensors[1].offset = 100);
    assert!(matches!(reason, Reason::Misaligned { offset: 100, alignment: 64, .. }), "{reason}");
    let reason = refusal(|d| d.tensors[1].offset = 64);
    assert!(matches!(reason, Reason::Overlap { .. }), "{reason}");
    for offset in [1 << 20, u64::MAX - 63] {
        let reason = refusal(|d| d.tensors[1].offset = offset);
        assert!(matches!(reason, Reason::Truncated { .. }), "{reason}");
    }
}

#[test]
fn a_refusal_names_the_path() {
    let path = std::env::temp_dir().join(format!("firstlight-hostile-{}.gguf", std::process::id()));
    let missing = GgufFile::open(&path).unwrap_err().to_string();
    assert!(missing.contains("firstlight-hostile-") && missing.contains("cannot be read"));
    for (bytes, want) in [(vec![], "not a GGUF file"), (Draft::new().bytes()[..200].to_vec(), "truncated")] {
        std::fs::write(&path, bytes).unwrap();
        let text = GgufFile::open(&path).unwrap_err().to_string();
        assert!(text.contains("firstlight-hostile-") && text.contains(want), "{text}");
    }
    std::fs::remove_file(&path).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever bytes change: a refusal, or a header whose every range and value can be followed.
    #[test]
    fn a_mutated_file_is_refused_or_safe_to_read(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        wide in prop::option::of((any::<prop::sample::Index>(), any::<u64>())),
        keep in any::<prop::sample::Index>(),
    ) {
        let mut bytes = Draft::new().bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some((at, number)) = wide {
            let at = at.index(bytes.len() - 8);
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        if keep.index(4) == 0 {
            bytes.truncate(keep.index(bytes.len()));
        }
        if let Ok(header) = Header::parse(&bytes) {
            let metadata = header.metadata.view(&bytes);
            for key in metadata.keys() {
                prop_assert!(metadata.get(key).is_some());
            }
            for tensor in &header.tensors {
                let data = &bytes[tensor.bytes.clone()];
                let mut values = vec![0.0; tensor.len()];
                tensor.format.dequantize(data, &mut values);
            }
        }
    }
}
