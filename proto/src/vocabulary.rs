//! Fingerprint of a vocabulary, by which a scheduler and an engine find out that they mean the same tokens.

/// Fingerprint of a vocabulary: its token strings in the order of their ids, written as the model's
/// files write them (byte-level strings stay as they are; an unused id is the empty string).
///
/// 128-bit FNV-1a over each string's length (four bytes, little-endian) and bytes, as hex. It tells
/// vocabularies apart that differ by accident; it is no protection against forgery.
pub fn fingerprint<'a>(tokens: impl IntoIterator<Item = &'a str>) -> String {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let mut hash = BASIS;
    for token in tokens {
        let len = (token.len() as u32).to_le_bytes();
        for byte in len.iter().chain(token.as_bytes()) {
            hash = (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
    }
    format!("fnv1a128:{hash:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_vocabularies_have_equal_fingerprints() {
        assert_eq!(fingerprint(["a", "b"]), fingerprint(vec!["a", "b"]));
    }

    #[test]
    fn order_boundaries_and_length_matter() {
        let all = [&["a", "b"][..], &["b", "a"], &["ab", ""], &["ab"], &["a"], &[]];
        let prints: std::collections::HashSet<_> = all.map(|v| fingerprint(v.iter().copied())).into();
        assert_eq!(prints.len(), all.len());
    }
}
