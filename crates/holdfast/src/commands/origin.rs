//! Who acts when a command does, for the audit log.

use holdfast_app::Origin;

pub fn origin() -> Origin {
    Origin { actor: "command line".to_owned(), ..Origin::default() }
}
