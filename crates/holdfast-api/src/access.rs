//! Who may use a route.

use holdfast_core::scope::Scope;

/// Who may use a route. There is no default, so every route has to state its access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anyone. The handler does its own access checks.
    Public,
    /// Any valid token.
    Token,
    /// A token with this scope.
    Scope(Scope),
    /// A token with both scopes, for an operation that would otherwise let one scope do what only the other allows.
    Both(Scope, Scope),
    /// A token with all of these scopes, for what shows something of all that they allow to see.
    All(&'static [Scope]),
}

impl Access {
    /// All scopes that the token must have.
    pub fn scopes(self) -> Vec<Scope> {
        match self {
            Self::Public | Self::Token => Vec::new(),
            Self::Scope(scope) => vec![scope],
            Self::Both(one, other) => vec![one, other],
            Self::All(scopes) => scopes.to_vec(),
        }
    }
}

impl From<Scope> for Access {
    fn from(scope: Scope) -> Self {
        Self::Scope(scope)
    }
}
