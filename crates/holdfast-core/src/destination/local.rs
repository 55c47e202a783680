//! A folder on the machine that runs Holdfast, below its data folder.

use crate::fields::FieldSpec;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalDestination;

pub const FIELDS: &[FieldSpec] = &[];
pub const SHOWN: &[FieldSpec] = &[];
