//! Who may use a route.

use holdfast_core::scope::Scope;

/// Who may use a route. There is no default: a route cannot be written without saying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anyone. The handler sees to its own safety.
    Public,
    /// Any valid token.
    Token,
    /// A token with this scope.
    Scope(Scope),
    /// A token with both scopes, for what would otherwise let its holder do what only the other one allows.
    Both(Scope, Scope),
}

impl Access {
    /// Every scope that a token needs here.
    pub fn scopes(self) -> Vec<Scope> {
        match self {
            Self::Public | Self::Token => Vec::new(),
            Self::Scope(scope) => vec![scope],
            Self::Both(one, other) => vec![one, other],
        }
    }
}

impl From<Scope> for Access {
    fn from(scope: Scope) -> Self {
        Self::Scope(scope)
    }
}
