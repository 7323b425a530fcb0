//! Structures that C code shares with this workspace: each is declared once, in Rust, and the C
//! declaration is generated from it.
//!
//! Invariant: a structure has no padding, so its bytes are its fields one after another.

/// The memory layout of a structure.
#[derive(Debug)]
pub struct StructLayout {
    /// The name of the structure in C.
    pub name: &'static str,
    /// The size of the structure in bytes.
    pub size: usize,
    /// The alignment of the structure in bytes; 1 if it is packed.
    pub alignment: usize,
    /// The fields of the structure in order.
    pub fields: &'static [Field],
}

/// A field of a structure.
#[derive(Debug)]
pub struct Field {
    /// The name of the field.
    pub name: &'static str,
    /// The type of the field in C.
    pub c_type: &'static str,
    /// The offset of the field in bytes.
    pub offset: usize,
}

/// A number with the same representation in C.
pub trait Number {
    /// The type in C.
    const C_TYPE: &'static str;
}

impl Number for u32 {
    const C_TYPE: &'static str = "u32";
}

impl Number for i32 {
    const C_TYPE: &'static str = "int";
}

impl Number for u64 {
    const C_TYPE: &'static str = "u64";
}

/// Declares a structure of numbers, with its layout as `LAYOUT`. The name in C follows `as`.
#[macro_export]
macro_rules! shared_structure {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident as $c_name:literal {
            $($(#[$note:meta])* $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $($(#[$note])* pub $field: $type,)*
        }

        impl $name {
            /// The layout of the structure, for C.
            #[allow(dead_code, reason = "only a test reads some layouts")]
            pub const LAYOUT: $crate::layout::StructLayout = $crate::layout::StructLayout {
                name: $c_name,
                size: size_of::<Self>(),
                alignment: align_of::<Self>(),
                fields: &[$($crate::layout::Field {
                    name: stringify!($field),
                    c_type: <$type as $crate::layout::Number>::C_TYPE,
                    offset: std::mem::offset_of!($name, $field),
                },)*],
            };

            /// The bytes of the structure, as C code reads them.
            #[allow(dead_code, reason = "structures of the kernel are passed by their address")]
            pub fn to_bytes(&self) -> Vec<u8> {
                let mut bytes = Vec::with_capacity(size_of::<Self>());
                $(bytes.extend({ self.$field }.to_ne_bytes());)*
                bytes
            }
        }

        const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$type>())*, "it has padding");
    };
}
