//! The schema of a database (RFC 7047, section 3.2): which tables and columns there are, and of which types.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use crate::uuid::Uuid;
use crate::value::{Atom, Datum, Real};

/// Version of a schema: major, minor, patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64, pub u64, pub u64);

/// A schema, as far as its values are read by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// Name of the database.
    pub name: String,
    /// Its version; a server may leave it out.
    pub version: Option<Version>,
    /// Types of columns by table and column.
    pub tables: BTreeMap<String, BTreeMap<String, ColumnType>>,
}

/// `<atomic-type>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomType {
    /// An integer of 64 bits.
    Integer,
    /// A real number.
    Real,
    /// A boolean.
    Boolean,
    /// A text.
    String,
    /// A row.
    Uuid,
}

/// `<type>` of a column, without the constraints that only writers meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnType {
    /// Type of a set's elements or a map's keys.
    pub key: AtomType,
    /// Type of a map's values.
    pub value: Option<AtomType>,
    /// Fewest elements, 0 or 1.
    pub min: u8,
    /// Whether it has one element at most.
    pub is_scalar: bool,
}

/// JSON that is no schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid schema: {0}")]
pub struct InvalidSchema(&'static str);

/// A value that is none of its column's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a value is not of its column's type")]
pub struct WrongType;

impl FromStr for Version {
    type Err = InvalidSchema;

    fn from_str(text: &str) -> Result<Self, InvalidSchema> {
        let mut parts = text.split('.').map(|part| part.parse().map_err(|_| InvalidSchema("version")));
        let mut next = || parts.next().unwrap_or(Err(InvalidSchema("version")));
        let version = Self(next()?, next()?, next()?);
        if parts.next().is_none() { Ok(version) } else { Err(InvalidSchema("version")) }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl Schema {
    /// Reads `<database-schema>`.
    ///
    /// # Errors
    ///
    /// If it has another form.
    pub fn from_json(json: &Value) -> Result<Self, InvalidSchema> {
        let name = json.get("name").and_then(Value::as_str).ok_or(InvalidSchema("no name"))?;
        let version = match json.get("version") {
            None => None,
            Some(version) => Some(version.as_str().ok_or(InvalidSchema("version"))?.parse()?),
        };
        let tables = json.get("tables").and_then(Value::as_object).ok_or(InvalidSchema("no tables"))?;
        let tables = tables.iter().map(|(name, table)| Ok((name.clone(), columns_from_json(table)?)));
        Ok(Self { name: name.to_owned(), version, tables: tables.collect::<Result<_, _>>()? })
    }
}

fn columns_from_json(table: &Value) -> Result<BTreeMap<String, ColumnType>, InvalidSchema> {
    let columns = table.get("columns").and_then(Value::as_object).ok_or(InvalidSchema("no columns"))?;
    let column = |(name, column): (&String, &Value)| {
        let kind = column.get("type").ok_or(InvalidSchema("a column without type"))?;
        Ok((name.clone(), ColumnType::from_json(kind)?))
    };
    columns.iter().map(column).collect()
}

impl AtomType {
    /// Reads `<base-type>`.
    fn from_json(json: &Value) -> Result<Self, InvalidSchema> {
        match json.get("type").unwrap_or(json).as_str() {
            Some("integer") => Ok(Self::Integer),
            Some("real") => Ok(Self::Real),
            Some("boolean") => Ok(Self::Boolean),
            Some("string") => Ok(Self::String),
            Some("uuid") => Ok(Self::Uuid),
            _ => Err(InvalidSchema("type")),
        }
    }

    /// Returns the value that a column has as long as nobody gives it one (RFC 7047, section 5.2.1).
    fn default_atom(self) -> Atom {
        match self {
            Self::Integer => Atom::Integer(0),
            Self::Real => Real::new(0.0).map_or(Atom::Integer(0), Atom::Real),
            Self::Boolean => Atom::Boolean(false),
            Self::String => Atom::String(String::new()),
            Self::Uuid => Atom::Uuid(Uuid::from_bytes([0; 16])),
        }
    }

    /// Returns the atom as one of this type: a server writes the real number 1.0 as 1.
    fn convert(self, atom: Atom) -> Result<Atom, WrongType> {
        match (self, atom) {
            (Self::Real, atom @ (Atom::Integer(_) | Atom::Real(_))) => Ok(atom.into_real()),
            (Self::Integer, atom @ Atom::Integer(_))
            | (Self::Boolean, atom @ Atom::Boolean(_))
            | (Self::String, atom @ Atom::String(_))
            | (Self::Uuid, atom @ Atom::Uuid(_)) => Ok(atom),
            _ => Err(WrongType),
        }
    }
}

impl ColumnType {
    /// Reads `<type>`.
    ///
    /// # Errors
    ///
    /// If it has another form.
    pub fn from_json(json: &Value) -> Result<Self, InvalidSchema> {
        let Some(members) = json.as_object() else {
            return Ok(Self { key: AtomType::from_json(json)?, value: None, min: 1, is_scalar: true });
        };
        let key = AtomType::from_json(members.get("key").ok_or(InvalidSchema("a type without key"))?)?;
        let value = members.get("value").map(AtomType::from_json).transpose()?;
        let min = match members.get("min").map(Value::as_u64) {
            None | Some(Some(1)) => 1,
            Some(Some(0)) => 0,
            _ => return Err(InvalidSchema("min")),
        };
        let is_scalar = match members.get("max") {
            None => true,
            Some(Value::String(max)) if max == "unlimited" => false,
            Some(max) => match max.as_u64() {
                Some(max) if max >= 1 => max == 1,
                _ => return Err(InvalidSchema("max")),
            },
        };
        Ok(Self { key, value, min, is_scalar })
    }

    /// Returns the type of a row's own UUID.
    pub const fn row() -> Self {
        Self { key: AtomType::Uuid, value: None, min: 1, is_scalar: true }
    }

    /// Returns the value that a column has as long as nobody gives it one (RFC 7047, section 5.2.1). Servers leave it out of
    /// new rows.
    pub fn default_datum(&self) -> Datum {
        let key = || self.key.default_atom();
        match (self.value, self.min) {
            (None, 0) => Datum::empty(),
            (None, _) => Datum::Atom(key()),
            (Some(_), 0) => Datum::Map(BTreeMap::new()),
            (Some(value), _) => Datum::Map(BTreeMap::from([(key(), value.default_atom())])),
        }
    }

    /// Returns the value as one of this type.
    ///
    /// # Errors
    ///
    /// If it is of another.
    pub fn convert(&self, datum: Datum) -> Result<Datum, WrongType> {
        match (datum, self.value) {
            (Datum::Atom(atom), None) => Ok(Datum::Atom(self.key.convert(atom)?)),
            (Datum::Set(set), None) => {
                let atoms = set.into_iter().map(|atom| self.key.convert(atom));
                Ok(Datum::of_set(atoms.collect::<Result<_, _>>()?))
            }
            (Datum::Map(map), Some(value)) => {
                let pairs = map.into_iter();
                let pairs = pairs.map(|(one, two)| Ok((self.key.convert(one)?, value.convert(two)?)));
                Ok(Datum::Map(pairs.collect::<Result<_, _>>()?))
            }
            (Datum::Map(_), None) | (Datum::Atom(_) | Datum::Set(_), Some(_)) => Err(WrongType),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn types_and_their_defaults_are_read() {
        let read = |json: Value| ColumnType::from_json(&json).unwrap();
        let string = read(json!("string"));
        assert_eq!(string, read(json!({"key": "string"})));
        assert_eq!(string.default_datum(), "".into());
        let optional = read(json!({"key": {"type": "uuid", "refTable": "T", "refType": "weak"}, "min": 0}));
        assert_eq!(optional, ColumnType { key: AtomType::Uuid, value: None, min: 0, is_scalar: true });
        assert_eq!(optional.default_datum(), Datum::empty());
        let map = read(json!({"key": "string", "value": "string", "min": 0, "max": "unlimited"}));
        assert!(!map.is_scalar);
        assert_eq!(map.default_datum(), Datum::Map(BTreeMap::new()));
        assert_eq!(read(json!({"key": "string", "value": "integer"})).default_datum(), Datum::map([("", 0)]));
        assert!(!read(json!({"key": "integer", "min": 1, "max": 3})).is_scalar);
        assert_eq!(read(json!("real")).default_datum(), Real::new(0.0).unwrap().into());
        assert_eq!(read(json!("boolean")).default_datum(), false.into());
    }

    #[test]
    fn other_types_are_refused() {
        for json in [
            json!("text"),
            json!(1),
            json!({}),
            json!({"key": "x"}),
            json!({"key": "string", "min": 2}),
            json!({"key": "string", "max": 0}),
            json!({"key": "string", "max": "many"}),
            json!({"key": "string", "value": 1}),
        ] {
            assert!(ColumnType::from_json(&json).is_err(), "{json}");
        }
    }

    #[test]
    fn values_become_those_of_their_columns() {
        let real = ColumnType::from_json(&json!({"key": "real", "min": 0, "max": "unlimited"})).unwrap();
        assert_eq!(
            real.convert(Datum::set([1, 2])),
            Ok(Datum::set([Real::new(1.0).unwrap(), Real::new(2.0).unwrap()]))
        );
        assert_eq!(real.convert("a".into()), Err(WrongType));
        assert_eq!(real.convert(Datum::map([(1, 2)])), Err(WrongType));
        let map =
            ColumnType::from_json(&json!({"key": "string", "value": "real", "min": 0, "max": 9})).unwrap();
        assert_eq!(map.convert(Datum::map([("a", 1)])), Ok(Datum::map([("a", Real::new(1.0).unwrap())])));
        assert_eq!(map.convert(Datum::empty()), Err(WrongType));
        assert_eq!(ColumnType::row().convert(true.into()), Err(WrongType));
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let read = |text: &str| text.parse::<Version>();
        assert!(read("6.1.0").unwrap() < read("10.0.0").unwrap());
        assert_eq!(read("7.0.0").unwrap().to_string(), "7.0.0");
        for wrong in ["", "6", "6.1", "6.1.0.0", "6.1.x", "-1.0.0"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_schema_is_read_or_refused() {
        let schema = json!({"name": "D", "version": "1.2.3",
            "tables": {"T": {"columns": {"name": {"type": "string"}}, "isRoot": true}}});
        let schema = Schema::from_json(&schema).unwrap();
        assert_eq!(schema.version, Some(Version(1, 2, 3)));
        assert_eq!(schema.tables["T"]["name"].key, AtomType::String);
        for json in [
            json!(null),
            json!({"name": "D"}),
            json!({"name": "D", "version": 1, "tables": {}}),
            json!({"name": "D", "version": "1.0.0", "tables": {"T": {}}}),
            json!({"name": "D", "version": "1.0.0", "tables": {"T": {"columns": {"a": {}}}}}),
        ] {
            assert!(Schema::from_json(&json).is_err(), "{json}");
        }
    }
}
