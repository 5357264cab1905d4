//! How much writers are slowed: smoothly, by how far background work is behind, and never stopped dead.
//!
//! Pure arithmetic. `engine` measures the pressure, a commit pays the delay.

/// Pressure 1.0 in thousandths: background work is as far behind as it may get.
pub(crate) const PRESSURE_MAX: u64 = 1000;

/// Nanoseconds a written byte costs at half pressure: 100 MB/s.
const HALF_PRESSURE_NS_PER_BYTE: u64 = 10;

/// Shortest delay worth a sleep; less is saved up.
pub(crate) const DELAY_NS_MIN: u64 = 200_000;

/// Longest single delay; what is over it is forgiven, so that no write waits long for one big batch.
pub(crate) const DELAY_NS_MAX: u64 = 20_000_000;

/// Delay for `bytes` at a pressure in thousandths: p / (1 - p) times the cost at half pressure.
pub(crate) fn delay_ns(pressure: u64, bytes: u64) -> u64 {
    let pressure = pressure.min(PRESSURE_MAX - 1);
    bytes.saturating_mul(HALF_PRESSURE_NS_PER_BYTE).saturating_mul(pressure) / (PRESSURE_MAX - pressure)
}

/// Pressure of a backlog that begins to count at `low` and is at its worst at `high`.
pub(crate) fn pressure(backlog: u64, low: u64, high: u64) -> u64 {
    let span = high.saturating_sub(low).max(1);
    (backlog.saturating_sub(low).saturating_mul(PRESSURE_MAX) / span).min(PRESSURE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No backlog costs nothing, more costs more, and even the worst is finite.
    #[test]
    fn delays_grow_smoothly_and_stay_finite() {
        assert_eq!(pressure(10, 10, 20), 0);
        assert_eq!(pressure(15, 10, 20), 500);
        assert_eq!(pressure(1000, 10, 20), PRESSURE_MAX);
        assert_eq!(pressure(5, 10, 10), 0);
        assert_eq!(delay_ns(0, 1 << 20), 0);
        assert_eq!(delay_ns(500, 1000), 10_000);
        let delays: Vec<u64> = (0..=PRESSURE_MAX).map(|p| delay_ns(p, 100)).collect();
        assert!(delays.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(delays[PRESSURE_MAX as usize] < 1_000_000);
    }
}
