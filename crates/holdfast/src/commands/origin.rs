//! The actor of commands, for the audit log.

use holdfast_app::Origin;

pub fn origin() -> Origin {
    Origin { actor: "command line".to_owned(), ..Origin::default() }
}
