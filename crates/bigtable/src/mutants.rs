//! Switches defences off, one at a time, to show that a test or the simulator notices.
//!
//! Only a build with `--cfg mutants` has the switches. In every other build [`off`] is a
//! constant and costs nothing. This module does not read the environment: the process that
//! runs the tests switches one defence off, once, before it does anything else. Each crate
//! with switches lists its own, with the macro [`mutants!`](crate::mutants!), in a module
//! `mutants`.

/// A defence that can be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mutant {
    /// The mutant's name, which is unique among the mutants of all crates.
    pub name: &'static str,
    /// The hazards that the defence prevents.
    pub hazards: &'static str,
    /// The test that notices, for a mutant that the simulator may not find.
    pub test: Option<&'static str>,
}

/// Lists the mutants of a crate. Each has a constant, a name, its hazards, and optionally the
/// test that notices.
#[doc(hidden)]
#[macro_export]
macro_rules! mutants {
    ($($constant:ident $name:literal $hazards:literal $(by $test:literal)?,)*) => {
        $(pub(crate) const $constant: $crate::mutants::Mutant = $crate::mutants::Mutant {
            name: $name,
            hazards: $hazards,
            test: $crate::mutants!(@test $($test)?),
        };)*

        /// All mutants of this crate.
        #[doc(hidden)]
        pub const ALL: &[$crate::mutants::Mutant] = &[$($constant),*];

        /// Switches a defence of this crate off for the rest of the process. Returns `false`
        /// if no mutant has this name.
        #[cfg(mutants)]
        #[doc(hidden)]
        pub fn switch_off(name: &str) -> bool {
            let found = ALL.iter().find(|mutant| mutant.name == name);
            found.is_some_and(|mutant| $crate::mutants::switch_off(*mutant))
        }
    };
    (@test) => { None };
    (@test $test:literal) => { Some($test) };
}

/// Whether the defence is switched off.
#[cfg(not(mutants))]
#[inline(always)]
pub const fn off(_: Mutant) -> bool {
    false
}

#[cfg(mutants)]
static OFF: std::sync::OnceLock<Mutant> = std::sync::OnceLock::new();

/// Whether the defence is switched off.
#[cfg(mutants)]
pub fn off(mutant: Mutant) -> bool {
    OFF.get().is_some_and(|off| *off == mutant)
}

/// Switches a defence off for the rest of the process. Returns `false` if another one is off
/// already.
#[cfg(mutants)]
pub fn switch_off(mutant: Mutant) -> bool {
    *OFF.get_or_init(|| mutant) == mutant
}
