//! Numbers out of repeated measurements.

use anyhow::{Result, ensure};

/// The middle of some values.
pub(super) fn median(values: &[f64]) -> Result<f64> {
    quantile(values, 0.5)
}

/// The value that a share of all values does not exceed.
pub(super) fn quantile(values: &[f64], share: f64) -> Result<f64> {
    ensure!(!values.is_empty(), "nothing was measured");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    Ok(sorted[rank.clamp(1, sorted.len()) - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&values, 0.99).unwrap(), 99.0);
        assert_eq!(median(&values).unwrap(), 50.0);
        assert_eq!(median(&[3.0]).unwrap(), 3.0);
        assert!(median(&[]).is_err());
    }
}
