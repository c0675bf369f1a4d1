//! Reading little-endian values from bytes that may end at any point.

use crate::error::Reason;

/// A position in the bytes of a file.
#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at byte `at`, which may lie beyond the end.
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Bytes left.
    pub fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// The bytes between this position and `end`, a later one in the same bytes.
    pub fn rest_until(&self, end: &Cursor<'a>) -> &'a [u8] {
        &self.bytes[self.at..end.at]
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// [`Reason::Truncated`] naming `what`.
    pub fn take(&mut self, len: u64, what: impl Fn() -> String) -> Result<&'a [u8], Reason> {
        self.expect(len, what)?;
        let start = self.at;
        self.at += len as usize;
        Ok(&self.bytes[start..self.at])
    }

    /// Checks that at least `need` bytes are left, before something is made for them.
    ///
    /// # Errors
    /// [`Reason::Truncated`] naming `what`.
    pub fn expect(&self, need: u64, what: impl Fn() -> String) -> Result<(), Reason> {
        let have = self.left();
        if need <= have as u64 {
            return Ok(());
        }
        Err(Reason::Truncated { what: what(), at: self.at, need, have })
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// [`Reason::Truncated`] naming `what`.
    pub fn array<const N: usize>(&mut self, what: impl Fn() -> String) -> Result<[u8; N], Reason> {
        let bytes = self.take(N as u64, what)?;
        Ok(bytes.try_into().expect("took exactly N bytes"))
    }

    /// A 32-bit number.
    ///
    /// # Errors
    /// [`Reason::Truncated`] naming `what`.
    pub fn u32(&mut self, what: impl Fn() -> String) -> Result<u32, Reason> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// A 64-bit number.
    ///
    /// # Errors
    /// [`Reason::Truncated`] naming `what`.
    pub fn u64(&mut self, what: impl Fn() -> String) -> Result<u64, Reason> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A string: 64-bit length, then UTF-8.
    ///
    /// # Errors
    /// [`Reason::Truncated`] or [`Reason::NotUtf8`] naming `what`.
    pub fn string(&mut self, what: impl Fn() -> String) -> Result<&'a str, Reason> {
        let len = self.u64(&what)?;
        let bytes = self.take(len, &what)?;
        std::str::from_utf8(bytes).map_err(|_| Reason::NotUtf8 { what: what() })
    }
}
