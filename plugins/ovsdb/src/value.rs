//! Values of columns, from and to JSON (RFC 7047, section 5.1).
//!
//! A column holds a set or a map of atoms. Its JSON says neither how many elements it may have nor, for numbers, of what
//! type they are: that is in the schema. So a set of one atom is the same value whether it is written bare or not, and
//! [`Datum`] compares it so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use crate::uuid::Uuid;

/// A number that is not an integer: finite, and zero has no sign, so that there is an order.
#[derive(Clone, Copy, PartialEq)]
pub struct Real(f64);

impl Real {
    /// Makes one, unless `value` is infinite or no number.
    pub fn new(value: f64) -> Option<Self> {
        value.is_finite().then_some(Self(value + 0.0))
    }

    /// Returns the number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl fmt::Debug for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Eq for Real {}

impl PartialOrd for Real {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Real {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// One value: `<atom>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Atom {
    /// A signed integer of 64 bits.
    Integer(i64),
    /// Another number. A server may write a real number without fraction as an integer.
    Real(Real),
    /// `true` or `false`.
    Boolean(bool),
    /// A text.
    String(String),
    /// A row.
    Uuid(Uuid),
    /// A row that another operation of the same transaction inserts; only ever sent.
    NamedUuid(String),
}

/// Value of one column: `<value>`, a set or a map.
///
/// A set of one element is equal to its atom; what is read from JSON or made by [`Datum::set`] has that form.
#[derive(Debug, Clone)]
pub enum Datum {
    /// A set of exactly one atom.
    Atom(Atom),
    /// A set. An optional column without value is the empty set.
    Set(BTreeSet<Atom>),
    /// A map.
    Map(BTreeMap<Atom, Atom>),
}

/// Values by column.
pub type Row = BTreeMap<String, Datum>;

/// JSON that is no value of a column.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidValue {
    /// Neither a text, a number, `true`, `false` nor an array with a tag that is known.
    #[error("not an atom, a set or a map")]
    Form,
    /// `["uuid", …]` without a UUID.
    #[error("invalid UUID")]
    Uuid,
    /// `["named-uuid", …]` without an identifier.
    #[error("invalid identifier")]
    Identifier,
    /// A set or the keys of a map have an element twice.
    #[error("duplicate element")]
    Duplicate,
    /// A set, the keys or the values of a map are of several types.
    #[error("elements of different types")]
    MixedTypes,
    /// A row that is no object.
    #[error("a row is not an object")]
    Row,
}

/// Returns `true` if `text` is an `<id>`: a name of a table, a column or a row to be inserted (RFC 7047, section 3.1).
pub fn is_identifier(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl Atom {
    /// Reads `<atom>`.
    ///
    /// # Errors
    ///
    /// If it has another form.
    pub fn from_json(json: &Value) -> Result<Self, InvalidValue> {
        match json {
            Value::String(text) => Ok(Self::String(text.clone())),
            Value::Bool(value) => Ok(Self::Boolean(*value)),
            Value::Number(number) => match number.as_i64() {
                Some(integer) => Ok(Self::Integer(integer)),
                None => number.as_f64().and_then(Real::new).map(Self::Real).ok_or(InvalidValue::Form),
            },
            Value::Array(pair) => match pair.as_slice() {
                [Value::String(tag), Value::String(text)] if tag == "uuid" => {
                    text.parse().map(Self::Uuid).map_err(|_| InvalidValue::Uuid)
                }
                [Value::String(tag), Value::String(name)] if tag == "named-uuid" => {
                    if is_identifier(name) {
                        Ok(Self::NamedUuid(name.clone()))
                    } else {
                        Err(InvalidValue::Identifier)
                    }
                }
                _ => Err(InvalidValue::Form),
            },
            Value::Null | Value::Object(_) => Err(InvalidValue::Form),
        }
    }

    /// Writes `<atom>`.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Integer(integer) => (*integer).into(),
            Self::Real(real) => real.get().into(),
            Self::Boolean(value) => (*value).into(),
            Self::String(text) => text.as_str().into(),
            Self::Uuid(uuid) => Value::Array(vec!["uuid".into(), uuid.to_string().into()]),
            Self::NamedUuid(name) => Value::Array(vec!["named-uuid".into(), name.as_str().into()]),
        }
    }

    /// Returns the text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// Returns the integer, if it is one.
    pub fn as_integer(&self) -> Option<i64> {
        if let Self::Integer(integer) = self { Some(*integer) } else { None }
    }

    /// Returns the UUID, if it is one.
    pub fn as_uuid(&self) -> Option<Uuid> {
        if let Self::Uuid(uuid) = self { Some(*uuid) } else { None }
    }

    /// Returns the boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Boolean(value) = self { Some(*value) } else { None }
    }

    /// Returns a number that is equal for atoms which may stand in the same set.
    fn kind(&self) -> u8 {
        match self {
            Self::Integer(_) | Self::Real(_) => 0,
            Self::Boolean(_) => 1,
            Self::String(_) => 2,
            Self::Uuid(_) | Self::NamedUuid(_) => 3,
        }
    }
}

impl Datum {
    /// Makes a set; that of one element becomes an atom.
    pub fn set(atoms: impl IntoIterator<Item = impl Into<Atom>>) -> Self {
        Self::of_set(atoms.into_iter().map(Into::into).collect())
    }

    /// Makes a map.
    pub fn map(pairs: impl IntoIterator<Item = (impl Into<Atom>, impl Into<Atom>)>) -> Self {
        Self::Map(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }

    /// Returns the empty set: an optional column without value.
    pub const fn empty() -> Self {
        Self::Set(BTreeSet::new())
    }

    pub(crate) fn of_set(mut atoms: BTreeSet<Atom>) -> Self {
        match atoms.len() {
            1 => atoms.pop_first().map_or_else(Self::empty, Self::Atom),
            _ => Self::Set(atoms),
        }
    }

    /// Reads `<value>`. A set of one atom may be written as the atom alone.
    ///
    /// # Errors
    ///
    /// If it has another form, elements of several types, or one element twice.
    pub fn from_json(json: &Value) -> Result<Self, InvalidValue> {
        if let Value::Array(pair) = json
            && let [Value::String(tag), Value::Array(elements)] = pair.as_slice()
        {
            match tag.as_str() {
                "set" => return read_set(elements),
                "map" => return read_map(elements),
                _ => {}
            }
        }
        Atom::from_json(json).map(Self::Atom)
    }

    /// Writes `<value>`; a set of one atom as the atom alone.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Atom(atom) => atom.to_json(),
            Self::Set(atoms) => match atoms.first() {
                Some(atom) if atoms.len() == 1 => atom.to_json(),
                _ => tagged("set", atoms.iter().map(Atom::to_json).collect()),
            },
            Self::Map(map) => {
                let pair = |(key, value): (&Atom, &Atom)| Value::Array(vec![key.to_json(), value.to_json()]);
                tagged("map", map.iter().map(pair).collect())
            }
        }
    }

    /// Returns the elements of a set in their order; none for a map.
    pub fn atoms(&self) -> impl Iterator<Item = &Atom> {
        let (one, set) = match self {
            Self::Atom(atom) => (Some(atom), None),
            Self::Set(set) => (None, Some(set)),
            Self::Map(_) => (None, None),
        };
        one.into_iter().chain(set.into_iter().flatten())
    }

    /// Returns the only element of a set.
    pub fn as_atom(&self) -> Option<&Atom> {
        let mut atoms = self.atoms();
        atoms.next().filter(|_| atoms.next().is_none())
    }

    /// Returns the text of a set of one text.
    pub fn as_str(&self) -> Option<&str> {
        self.as_atom().and_then(Atom::as_str)
    }

    /// Returns the integer of a set of one integer.
    pub fn as_integer(&self) -> Option<i64> {
        self.as_atom().and_then(Atom::as_integer)
    }

    /// Returns the UUID of a set of one UUID.
    pub fn as_uuid(&self) -> Option<Uuid> {
        self.as_atom().and_then(Atom::as_uuid)
    }

    /// Returns the boolean of a set of one boolean.
    pub fn as_bool(&self) -> Option<bool> {
        self.as_atom().and_then(Atom::as_bool)
    }

    /// Returns the UUIDs of a set, in their order.
    pub fn uuids(&self) -> impl Iterator<Item = Uuid> {
        self.atoms().filter_map(Atom::as_uuid)
    }

    /// Returns the map.
    pub fn as_map(&self) -> Option<&BTreeMap<Atom, Atom>> {
        if let Self::Map(map) = self { Some(map) } else { None }
    }

    /// Returns the text that a map of texts has for `key`.
    pub fn value_of(&self, key: &str) -> Option<&str> {
        // The key of a map is an owned text; these maps are small.
        self.as_map()?.iter().find(|(candidate, _)| candidate.as_str() == Some(key))?.1.as_str()
    }

    /// Returns the number of elements of a set or of pairs of a map.
    pub fn len(&self) -> usize {
        match self {
            Self::Atom(_) => 1,
            Self::Set(set) => set.len(),
            Self::Map(map) => map.len(),
        }
    }

    /// Returns `true` if it has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl PartialEq for Datum {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Map(one), Self::Map(two)) => one == two,
            (Self::Map(_), _) | (_, Self::Map(_)) => false,
            (one, two) => one.len() == two.len() && one.atoms().eq(two.atoms()),
        }
    }
}

impl Eq for Datum {}

/// Reads a row: an object of values by column.
///
/// # Errors
///
/// If it is no object, or a value has another form.
pub fn row_from_json(json: &Value) -> Result<Row, InvalidValue> {
    let columns = json.as_object().ok_or(InvalidValue::Row)?;
    columns.iter().map(|(column, value)| Ok((column.clone(), Datum::from_json(value)?))).collect()
}

/// Writes a row.
pub fn row_to_json(row: &Row) -> Value {
    Value::Object(row.iter().map(|(column, value)| (column.clone(), value.to_json())).collect())
}

fn tagged(tag: &str, elements: Vec<Value>) -> Value {
    Value::Array(vec![tag.into(), Value::Array(elements)])
}

fn read_set(elements: &[Value]) -> Result<Datum, InvalidValue> {
    let atoms = of_one_type(elements.iter().map(Atom::from_json).collect::<Result<_, _>>()?)?;
    let set: BTreeSet<Atom> = atoms.into_iter().collect();
    if set.len() == elements.len() { Ok(Datum::of_set(set)) } else { Err(InvalidValue::Duplicate) }
}

fn read_map(elements: &[Value]) -> Result<Datum, InvalidValue> {
    let mut keys = Vec::with_capacity(elements.len());
    let mut values = Vec::with_capacity(elements.len());
    for element in elements {
        let Some([key, value]) = element.as_array().map(Vec::as_slice) else {
            return Err(InvalidValue::Form);
        };
        keys.push(Atom::from_json(key)?);
        values.push(Atom::from_json(value)?);
    }
    let map: BTreeMap<Atom, Atom> = of_one_type(keys)?.into_iter().zip(of_one_type(values)?).collect();
    if map.len() == elements.len() { Ok(Datum::Map(map)) } else { Err(InvalidValue::Duplicate) }
}

/// Checks that all atoms are of one type. Integers among real numbers become real: a server writes 1.0 as 1.
fn of_one_type(atoms: Vec<Atom>) -> Result<Vec<Atom>, InvalidValue> {
    if atoms.windows(2).any(|pair| pair[0].kind() != pair[1].kind()) {
        return Err(InvalidValue::MixedTypes);
    }
    if !atoms.iter().any(|atom| matches!(atom, Atom::Real(_))) {
        return Ok(atoms);
    }
    Ok(atoms.into_iter().map(Atom::into_real).collect())
}

impl Atom {
    /// Makes a real number of an integer, as a column of real numbers has them.
    pub(crate) fn into_real(self) -> Self {
        let Self::Integer(integer) = self else { return self };
        #[expect(
            clippy::cast_precision_loss,
            reason = "a real number has 53 bits, and is what the column holds"
        )]
        let real = integer as f64;
        Real::new(real).map_or(Self::Integer(integer), Self::Real)
    }
}

impl From<i64> for Atom {
    fn from(integer: i64) -> Self {
        Self::Integer(integer)
    }
}

impl From<Real> for Atom {
    fn from(real: Real) -> Self {
        Self::Real(real)
    }
}

impl From<bool> for Atom {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

impl From<&str> for Atom {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for Atom {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<Uuid> for Atom {
    fn from(uuid: Uuid) -> Self {
        Self::Uuid(uuid)
    }
}

impl<T: Into<Atom>> From<T> for Datum {
    fn from(atom: T) -> Self {
        Self::Atom(atom.into())
    }
}

#[cfg(test)]
pub(crate) mod tests;
