//! The file system of an image: from the archives of its layers to the metadata that is mounted.
//! Rooms use those above them in this table only:
//!
//! | room | owns |
//! |---|---|
//! | `tree` | the tree of an image, merged from the changes of all layers |
//! | `erofs` | the tree as EROFS metadata over one device per layer, written and read |
//! | `layer` | a layer's archive, parsed into changes and contents |

pub mod erofs;
pub mod layer;
pub mod tree;
