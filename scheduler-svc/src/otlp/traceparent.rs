//! The trace that a caller's request belongs to, from its `traceparent` (W3C Trace Context, level 1, §3.2).

/// A caller's trace and the span within it that made the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// Names the trace; not all 0.
    pub trace_id: [u8; 16],
    /// Names the caller's span; not all 0.
    pub parent_id: [u8; 8],
    /// The caller records this trace; otherwise we do not either.
    pub sampled: bool,
}

impl TraceParent {
    /// Reads `VERSION-TRACE-PARENT-FLAGS` in lower-case hex. `None` when it is invalid: the trace then starts here.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut next = || parts.next();
        let (version, trace, parent, flags) = (next()?, next()?, next()?, next()?);
        let [version] = bytes(version)?;
        // Later versions may append more; this one may not.
        if version == 0xff || (version == 0 && next().is_some()) {
            return None;
        }
        let [flags] = bytes(flags)?;
        let (trace_id, parent_id) = (bytes(trace)?, bytes(parent)?);
        let named = trace_id != [0; 16] && parent_id != [0; 8];
        named.then_some(Self { trace_id, parent_id, sampled: flags & 1 == 1 })
    }
}

/// `N` bytes of lower-case hex, exactly.
fn bytes<const N: usize>(hex: &str) -> Option<[u8; N]> {
    let lower = hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if hex.len() != 2 * N || !lower {
        return None;
    }
    let mut out = [0; N];
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const PARENT: &str = "b7ad6b7169203331";

    #[test]
    fn a_callers_trace_is_read() {
        let parsed = TraceParent::parse(&format!("00-{TRACE}-{PARENT}-01")).unwrap();
        assert_eq!((parsed.trace_id[0], parsed.trace_id[15]), (0x0a, 0x9c));
        assert_eq!((parsed.parent_id[0], parsed.sampled), (0xb7, true));
        assert!(!TraceParent::parse(&format!("00-{TRACE}-{PARENT}-00")).unwrap().sampled);
        assert!(TraceParent::parse(&format!("cc-{TRACE}-{PARENT}-01-more")).is_some(), "a later version");
    }

    #[test]
    fn what_is_no_traceparent_is_ignored() {
        let zero = "0".repeat(32);
        for wrong in [
            String::new(),
            "00".into(),
            format!("ff-{TRACE}-{PARENT}-01"),
            format!("00-{TRACE}-{PARENT}-01-more"),
            format!("00-{zero}-{PARENT}-01"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{}-{PARENT}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{PARENT}-1"),
            format!("00-{TRACE}é-{PARENT}-01"),
        ] {
            assert_eq!(TraceParent::parse(&wrong), None, "{wrong}");
        }
    }
}
