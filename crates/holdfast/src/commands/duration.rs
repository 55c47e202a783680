//! Durations on the command line.

use crate::failure::Failure;

/// `30d`, `12h`, `90m`, `45s` in microseconds; at most ten years.
pub fn parse(flag: &str, text: &str) -> Result<i64, Failure> {
    let wrong = || Failure::settings(format!("{flag} must be a time such as 30d, 12h, 90m or 45s, not {text:?}"));
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds: i64 = match unit {
        'd' => 86_400,
        'h' => 3_600,
        'm' => 60,
        's' => 1,
        _ => return Err(wrong()),
    };
    let number: i64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    let total = number.checked_mul(seconds).filter(|total| (1..=3650 * 86_400).contains(total)).ok_or_else(wrong)?;
    Ok(total * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse("--for", "30d").unwrap(), 30 * 86_400_000_000);
        assert_eq!(parse("--timeout", "45s").unwrap(), 45_000_000);
        for bad in ["", "d", "0d", "-1d", "30", "30y", "99999999999999d", "3é"] {
            assert!(parse("--for", bad).is_err(), "{bad}");
        }
    }
}
