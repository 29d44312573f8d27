//! Defences that can be switched off, one at a time, to show that a test or the simulator notices.
//!
//! Only a build with `--cfg mutants` has the switches; in every other one [`off`] is a constant and
//! leaves no trace. Nothing here reads the environment: the process that runs the tests says which
//! defence is off, once, before it does anything else. Each crate with switches lists its own, with
//! the macro [`mutants!`](crate::mutants!), in a module `mutants`.

/// A defence that can be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mutant {
    /// Its name, which no other mutant of any crate has.
    pub name: &'static str,
    /// The hazards that the defence is against.
    pub hazards: &'static str,
    /// The test that notices, where it is one that the simulator cannot be expected to.
    pub test: Option<&'static str>,
}

/// Lists the mutants of a crate: for each a constant, its name, its hazards, and the test that
/// notices.
#[doc(hidden)]
#[macro_export]
macro_rules! mutants {
    ($($constant:ident $name:literal $hazards:literal $(by $test:literal)?,)*) => {
        $(pub(crate) const $constant: $crate::mutants::Mutant = $crate::mutants::Mutant {
            name: $name,
            hazards: $hazards,
            test: $crate::mutants!(@test $($test)?),
        };)*

        /// All of this crate.
        #[doc(hidden)]
        pub const ALL: &[$crate::mutants::Mutant] = &[$($constant),*];

        /// Switches a defence of this crate off for the rest of the process; `false` if there is
        /// none of this name.
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

/// Whether a defence is switched off.
#[cfg(not(mutants))]
#[inline(always)]
pub const fn off(_: Mutant) -> bool {
    false
}

#[cfg(mutants)]
static OFF: std::sync::OnceLock<Mutant> = std::sync::OnceLock::new();

/// Whether a defence is switched off.
#[cfg(mutants)]
pub fn off(mutant: Mutant) -> bool {
    OFF.get().is_some_and(|off| *off == mutant)
}

/// Switches a defence off for the rest of the process; `false` if another one is off already.
#[cfg(mutants)]
pub fn switch_off(mutant: Mutant) -> bool {
    *OFF.get_or_init(|| mutant) == mutant
}
