//! Vector registers as tract leaves them.

/// Clears the upper halves of the vector registers, where the processor has AVX.
///
/// tract's matrix kernels (tract-linalg 0.23) leave numbers there. Some processors then take hundreds of
/// nanoseconds for each instruction of SSE, of which all other code consists.
#[cfg(target_arch = "x86_64")]
pub(super) fn clear_upper_halves() {
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the processor has AVX, and no caller relies on upper halves across a call.
        #[allow(unsafe_code)]
        unsafe {
            std::arch::x86_64::_mm256_zeroupper();
        }
    }
}

/// Other processors have no upper halves.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn clear_upper_halves() {}
