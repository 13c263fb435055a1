//! Numbers of registries that have names, and those that have none here.

/// Makes an enum of the named values of a registry, with `Other` for the rest, its codes both ways and its names.
macro_rules! codes {
    (
        $(#[$doc:meta])*
        $name:ident: $number:ty {
            $( $(#[$variant_doc:meta])* $variant:ident = $code:literal, $text:literal; )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $( $(#[$variant_doc])* $variant, )*
            /// A value without a name here; never one that has a variant.
            Other($number),
        }

        impl $name {
            /// From the number on the wire.
            #[must_use]
            pub fn from_code(code: $number) -> Self {
                match code {
                    $( $code => Self::$variant, )*
                    other => Self::Other(other),
                }
            }

            /// The number on the wire.
            #[must_use]
            pub fn code(self) -> $number {
                match self {
                    $( Self::$variant => $code, )*
                    Self::Other(other) => other,
                }
            }

            /// The name in the registry, if it has one here.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $( Self::$variant => Some($text), )*
                    Self::Other(_) => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{}", self.code()),
                }
            }
        }
    };
}

pub(super) use codes;
