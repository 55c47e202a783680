//! Closed lists of words: enums whose variants each stand for one word in the API and in the database.

/// A word that is not on the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownWord(pub String);

impl std::fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} is not a known word", self.0)
    }
}

impl std::error::Error for UnknownWord {}

macro_rules! string_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$about])* $variant),* }

        impl $name {
            pub const ALL: &[$name] = &[$($name::$variant),*];
            pub const WORDS: &[&str] = &[$($text),*];

            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }

            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = $crate::string_enum::UnknownWord;

            fn try_from(text: &str) -> Result<Self, Self::Error> {
                Self::parse(text).ok_or_else(|| $crate::string_enum::UnknownWord(text.to_owned()))
            }
        }
    };
}
