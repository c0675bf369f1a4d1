//! The key-value pairs of a header: checked once when parsed, decoded in place when asked for.

use std::collections::HashMap;
use std::ops::Range;

use crate::cursor::Cursor;
use crate::error::Reason;

/// Arrays nested deeper than this are refused; real files use one level.
const MAX_NESTING: usize = 4;

/// Where each key's value lies in the file's bytes; every value there was checked.
#[derive(Debug, Default)]
pub struct Layout {
    values: HashMap<String, (ValueType, Range<usize>)>,
}

impl Layout {
    /// Reads and checks `count` pairs.
    ///
    /// # Errors
    /// The first thing wrong.
    pub fn parse(cursor: &mut Cursor<'_>, bytes: &[u8], count: u64) -> Result<Self, Reason> {
        let mut values = HashMap::new();
        for index in 0..count {
            let key = cursor.string(|| format!("metadata key {index} of {count}"))?;
            let what = || format!("metadata key {key}");
            let kind = ValueType::parse(cursor.u32(what)?, what)?;
            let start = cursor.position();
            skip(cursor, kind, 0, &what)?;
            let range = start..cursor.position();
            debug_assert!(range.end <= bytes.len());
            if values.insert(key.to_owned(), (kind, range)).is_some() {
                return Err(Reason::Duplicate { what: what() });
            }
        }
        Ok(Self { values })
    }

    /// The values, read from the same bytes.
    pub fn view<'a>(&'a self, bytes: &'a [u8]) -> Metadata<'a> {
        Metadata { layout: self, bytes }
    }
}

/// The key-value pairs of an open file.
#[derive(Debug, Clone, Copy)]
pub struct Metadata<'a> {
    layout: &'a Layout,
    bytes: &'a [u8],
}

impl<'a> Metadata<'a> {
    /// All keys, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.layout.values.keys().map(String::as_str)
    }

    /// The value under `key`.
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        let (kind, range) = self.layout.values.get(key)?;
        let mut cursor = Cursor::new(&self.bytes[..range.end], range.start);
        Some(decode(&mut cursor, *kind))
    }

    /// A string.
    ///
    /// # Errors
    /// When it is missing or of another type.
    pub fn str(&self, key: &str) -> Result<&'a str, Reason> {
        match self.required(key)? {
            Value::String(text) => Ok(text),
            _ => Err(wrong_type(key, "a string")),
        }
    }

    /// A number of any integer type, not negative.
    ///
    /// # Errors
    /// When it is missing, of another type or negative.
    pub fn unsigned(&self, key: &str) -> Result<u64, Reason> {
        self.required(key)?.as_unsigned().ok_or_else(|| wrong_type(key, "a number of at least 0"))
    }

    /// A floating-point number.
    ///
    /// # Errors
    /// When it is missing or of another type.
    pub fn float(&self, key: &str) -> Result<f64, Reason> {
        self.required(key)?.as_float().ok_or_else(|| wrong_type(key, "a floating-point number"))
    }

    /// A boolean.
    ///
    /// # Errors
    /// When it is missing or of another type.
    pub fn bool(&self, key: &str) -> Result<bool, Reason> {
        match self.required(key)? {
            Value::Bool(value) => Ok(value),
            _ => Err(wrong_type(key, "a boolean")),
        }
    }

    /// An array of strings.
    ///
    /// # Errors
    /// When it is missing or of another type.
    pub fn strs(&self, key: &str) -> Result<Vec<&'a str>, Reason> {
        self.elements(key, "an array of strings", |value| match value {
            Value::String(text) => Some(text),
            _ => None,
        })
    }

    /// An array of numbers of any integer type, none negative.
    ///
    /// # Errors
    /// When it is missing or of another type.
    pub fn unsigneds(&self, key: &str) -> Result<Vec<u64>, Reason> {
        self.elements(key, "an array of numbers of at least 0", |value| value.as_unsigned())
    }

    /// An array of floating-point numbers.
    ///
    /// # Errors
    /// When it is missing or of another type.
    pub fn floats(&self, key: &str) -> Result<Vec<f64>, Reason> {
        self.elements(key, "an array of floating-point numbers", |value| value.as_float())
    }

    fn required(&self, key: &str) -> Result<Value<'a>, Reason> {
        self.get(key).ok_or_else(|| Reason::MissingKey(key.to_owned()))
    }

    fn elements<T>(
        &self,
        key: &str,
        wanted: &'static str,
        convert: impl Fn(Value<'a>) -> Option<T>,
    ) -> Result<Vec<T>, Reason> {
        let Value::Array(array) = self.required(key)? else {
            return Err(wrong_type(key, wanted));
        };
        array.iter().map(|value| convert(value).ok_or_else(|| wrong_type(key, wanted))).collect()
    }
}

/// One value, borrowed from the file.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// Any unsigned integer type.
    Unsigned(u64),
    /// Any signed integer type.
    Signed(i64),
    /// Either floating-point type.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A string.
    String(&'a str),
    /// Values of one type.
    Array(Array<'a>),
}

impl Value<'_> {
    fn as_unsigned(&self) -> Option<u64> {
        match *self {
            Value::Unsigned(value) => Some(value),
            Value::Signed(value) => value.try_into().ok(),
            _ => None,
        }
    }

    fn as_float(&self) -> Option<f64> {
        match *self {
            Value::Float(value) => Some(value),
            _ => None,
        }
    }
}

/// An array, decoded as it is walked.
#[derive(Debug, Clone, PartialEq)]
pub struct Array<'a> {
    kind: ValueType,
    len: u64,
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let kind = self.kind;
        let mut cursor = Cursor::new(self.bytes, 0);
        (0..self.len).map(move |_| decode(&mut cursor, kind))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    fn parse(id: u32, what: impl Fn() -> String) -> Result<Self, Reason> {
        use ValueType::*;
        let all = [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64];
        all.get(id as usize).copied().ok_or_else(|| Reason::ValueType { what: what(), id })
    }

    /// Bytes of the smallest value.
    fn min_bytes(self) -> u64 {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => 1,
            ValueType::U16 | ValueType::I16 => 2,
            ValueType::U32 | ValueType::I32 | ValueType::F32 => 4,
            ValueType::U64 | ValueType::I64 | ValueType::F64 | ValueType::String => 8,
            ValueType::Array => 12,
        }
    }
}

/// Checks a value and moves past it.
fn skip(
    cursor: &mut Cursor<'_>,
    kind: ValueType,
    depth: usize,
    what: &impl Fn() -> String,
) -> Result<(), Reason> {
    match kind {
        ValueType::String => cursor.string(what).map(drop),
        ValueType::Bool => match cursor.array(what)? {
            [0 | 1] => Ok(()),
            [byte] => Err(Reason::Bool { what: what(), byte }),
        },
        ValueType::Array => {
            if depth == MAX_NESTING {
                return Err(Reason::Nesting { what: what(), limit: MAX_NESTING });
            }
            let element = ValueType::parse(cursor.u32(what)?, what)?;
            let len = cursor.u64(what)?;
            cursor.expect(len.saturating_mul(element.min_bytes()), what)?;
            (0..len).try_for_each(|_| skip(cursor, element, depth + 1, what))
        }
        _ => cursor.take(kind.min_bytes(), what).map(drop),
    }
}

/// Reads a value that [`skip`] has passed before.
fn decode<'a>(cursor: &mut Cursor<'a>, kind: ValueType) -> Value<'a> {
    try_decode(cursor, kind).expect("checked when the header was parsed")
}

fn try_decode<'a>(cursor: &mut Cursor<'a>, kind: ValueType) -> Result<Value<'a>, Reason> {
    let what = || "metadata value".to_owned();
    Ok(match kind {
        ValueType::U8 => Value::Unsigned(cursor.array::<1>(what)?[0].into()),
        ValueType::I8 => Value::Signed(i8::from_le_bytes(cursor.array(what)?).into()),
        ValueType::U16 => Value::Unsigned(u16::from_le_bytes(cursor.array(what)?).into()),
        ValueType::I16 => Value::Signed(i16::from_le_bytes(cursor.array(what)?).into()),
        ValueType::U32 => Value::Unsigned(cursor.u32(what)?.into()),
        ValueType::I32 => Value::Signed(i32::from_le_bytes(cursor.array(what)?).into()),
        ValueType::U64 => Value::Unsigned(cursor.u64(what)?),
        ValueType::I64 => Value::Signed(i64::from_le_bytes(cursor.array(what)?)),
        ValueType::F32 => Value::Float(f32::from_le_bytes(cursor.array(what)?).into()),
        ValueType::F64 => Value::Float(f64::from_le_bytes(cursor.array(what)?)),
        ValueType::Bool => Value::Bool(cursor.array::<1>(what)? == [1]),
        ValueType::String => Value::String(cursor.string(what)?),
        ValueType::Array => {
            let kind = ValueType::parse(cursor.u32(what)?, what)?;
            let len = cursor.u64(what)?;
            let start = cursor.clone();
            for _ in 0..len {
                skip(cursor, kind, 0, &what)?;
            }
            let bytes = start.rest_until(cursor);
            Value::Array(Array { kind, len, bytes })
        }
    })
}

fn wrong_type(key: &str, wanted: &'static str) -> Reason {
    Reason::WrongType { key: key.to_owned(), wanted }
}
