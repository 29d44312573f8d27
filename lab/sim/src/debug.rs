//! Implements `Debug` for types whose fields would say too much: they are shown by name.

macro_rules! shown_by_name {
    ($name:ident) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}
