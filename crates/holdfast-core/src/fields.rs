//! Fields as data. A specification lists its fields once, with their names, types and limits. Checks, forms, the
//! OpenAPI document, `apply` and everything else that needs to know the fields read that list.

/// One field of a request.
#[derive(Debug, Clone, Copy)]
pub struct FieldSpec {
    pub name: &'static str,
    /// Other names that related products use for it.
    pub aliases: &'static [&'static str],
    pub kind: FieldKind,
    /// Its description in the OpenAPI document.
    pub about: &'static str,
    /// Must be given on create.
    pub is_required: bool,
    /// Null is allowed; it clears the field or gives it its default.
    pub is_nullable: bool,
    pub default: Option<DefaultValue>,
    /// The field that decides whether this one applies, and the values for which it does.
    pub only_if: Option<(&'static str, &'static [&'static str])>,
    /// Where responses show it, as a JSON pointer; for a secret, where they show whether it is set.
    pub shown_at: Option<&'static str>,
    /// Those values of the `only_if` field for which responses show this one; empty for all of them.
    pub shown_if: &'static [&'static str],
    /// Changing it requires the secrets again: the stored ones were given for another recipient.
    pub requires_secrets: bool,
    /// Trailing slashes are removed.
    pub trims_slashes: bool,
}

/// What a field holds.
#[derive(Debug, Clone, Copy)]
pub enum FieldKind {
    /// One line of text. The pattern is a regular expression for clients; the specification has its own check.
    Line {
        min_chars: usize,
        max_chars: usize,
        pattern: Option<&'static str>,
    },
    /// Text of several lines.
    Paragraph {
        max_chars: usize,
    },
    /// Several lines of text.
    Lines {
        max_items: usize,
        max_chars: usize,
    },
    /// One word of a closed list.
    Choice(&'static [&'static str]),
    Switch,
    Integer {
        min: i64,
        max: i64,
    },
    /// The id of another resource of the same user.
    Id,
    Ids {
        max_items: usize,
    },
    /// Text that is never shown again.
    Secret {
        min_chars: usize,
        max_chars: usize,
        pattern: Option<&'static str>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultValue {
    Switch(bool),
    Integer(i64),
    Text(&'static str),
}

impl FieldSpec {
    const fn new(name: &'static str, kind: FieldKind) -> Self {
        Self {
            name,
            aliases: &[],
            kind,
            about: "",
            is_required: false,
            is_nullable: true,
            default: None,
            only_if: None,
            shown_at: None,
            shown_if: &[],
            requires_secrets: false,
            trims_slashes: false,
        }
    }

    pub const fn line(name: &'static str, max_chars: usize) -> Self {
        Self::new(name, FieldKind::Line { min_chars: 0, max_chars, pattern: None })
    }

    pub const fn paragraph(name: &'static str, max_chars: usize) -> Self {
        Self::new(name, FieldKind::Paragraph { max_chars })
    }

    pub const fn lines(name: &'static str, max_items: usize, max_chars: usize) -> Self {
        Self::new(name, FieldKind::Lines { max_items, max_chars })
    }

    pub const fn choice(name: &'static str, words: &'static [&'static str]) -> Self {
        Self::new(name, FieldKind::Choice(words))
    }

    pub const fn switch(name: &'static str) -> Self {
        Self::new(name, FieldKind::Switch).not_null()
    }

    pub const fn integer(name: &'static str, min: i64, max: i64) -> Self {
        Self::new(name, FieldKind::Integer { min, max })
    }

    pub const fn id(name: &'static str) -> Self {
        Self::new(name, FieldKind::Id)
    }

    pub const fn ids(name: &'static str, max_items: usize) -> Self {
        Self::new(name, FieldKind::Ids { max_items })
    }

    pub const fn secret(name: &'static str, max_chars: usize) -> Self {
        Self::new(name, FieldKind::Secret { min_chars: 1, max_chars, pattern: None })
    }

    pub const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    /// Must be given on create, and must never be empty.
    pub const fn required(self) -> Self {
        Self { is_required: true, ..self.not_null() }
    }

    pub const fn not_null(self) -> Self {
        Self { is_nullable: false, ..self }
    }

    pub const fn also_called(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    pub const fn only_if(self, field: &'static str, values: &'static [&'static str]) -> Self {
        Self { only_if: Some((field, values)), ..self }
    }

    pub const fn shown_at(self, pointer: &'static str) -> Self {
        Self { shown_at: Some(pointer), ..self }
    }

    /// Responses show it only for these values of the `only_if` field.
    pub const fn shown_if(self, values: &'static [&'static str]) -> Self {
        Self { shown_if: values, ..self }
    }

    pub const fn trims_slashes(self) -> Self {
        Self { trims_slashes: true, ..self }
    }

    pub const fn requires_secrets(self) -> Self {
        Self { requires_secrets: true, ..self }
    }

    pub const fn default_to(self, default: DefaultValue) -> Self {
        Self { default: Some(default), ..self }
    }

    pub const fn pattern(self, pattern: &'static str) -> Self {
        match self.kind {
            FieldKind::Line { min_chars, max_chars, .. } => {
                Self { kind: FieldKind::Line { min_chars, max_chars, pattern: Some(pattern) }, ..self }
            }
            FieldKind::Secret { min_chars, max_chars, .. } => {
                Self { kind: FieldKind::Secret { min_chars, max_chars, pattern: Some(pattern) }, ..self }
            }
            // Fails at compile time: fields are constants.
            _ => panic!("only lines and secrets have a pattern"),
        }
    }

    pub const fn min_chars(self, min_chars: usize) -> Self {
        match self.kind {
            FieldKind::Line { max_chars, pattern, .. } => {
                Self { kind: FieldKind::Line { min_chars, max_chars, pattern }, ..self }
            }
            FieldKind::Secret { max_chars, pattern, .. } => {
                Self { kind: FieldKind::Secret { min_chars, max_chars, pattern }, ..self }
            }
            _ => panic!("only lines and secrets have a minimum length"),
        }
    }

    /// Whether it applies, given the values of the other fields.
    pub fn applies(&self, value: impl FnOnce(&str) -> String) -> bool {
        self.only_if.is_none_or(|(field, values)| values.contains(&value(field).as_str()))
    }

    /// Whether responses show it, given the values of the other fields.
    pub fn is_shown(&self, value: impl Fn(&str) -> String) -> bool {
        let is_listed = |(field, _)| self.shown_if.is_empty() || self.shown_if.contains(&value(field).as_str());
        self.shown_at.is_some() && self.applies(&value) && self.only_if.is_none_or(is_listed)
    }

    /// Its name in the object that holds it, which a listed name has before a dot.
    pub fn inner_name(&self) -> &'static str {
        self.name.rsplit_once('.').map_or(self.name, |(_, name)| name)
    }

    pub fn is_secret(&self) -> bool {
        matches!(self.kind, FieldKind::Secret { .. })
    }

    /// The maximum length of its text.
    pub fn max_chars(&self) -> usize {
        match self.kind {
            FieldKind::Line { max_chars, .. }
            | FieldKind::Paragraph { max_chars }
            | FieldKind::Lines { max_chars, .. }
            | FieldKind::Secret { max_chars, .. } => max_chars,
            FieldKind::Choice(_)
            | FieldKind::Switch
            | FieldKind::Integer { .. }
            | FieldKind::Id
            | FieldKind::Ids { .. } => usize::MAX,
        }
    }
}

/// The fields that depend on a value which the deciding field cannot have.
#[cfg(test)]
pub(crate) fn never_applying<'a>(fields: impl Iterator<Item = &'a FieldSpec>) -> Vec<&'a str> {
    let fields: Vec<&FieldSpec> = fields.collect();
    let can_have = |decides: &str, value: &&str| {
        fields.iter().any(|field| {
            field.name == decides && matches!(field.kind, FieldKind::Choice(words) if words.contains(value))
        })
    };
    let is_never = |field: &&FieldSpec| {
        let (decides, values) = field.only_if?;
        (!values.iter().chain(field.shown_if).all(|value| can_have(decides, value))).then_some(field.name)
    };
    fields.iter().filter_map(is_never).collect()
}
