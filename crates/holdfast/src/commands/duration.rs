//! Durations on the command line.

use crate::failure::Failure;

/// `30d`, `12h`, `1h30m`, `45s` in microseconds; at most ten years.
pub fn parse(flag: &str, text: &str) -> Result<i64, Failure> {
    let wrong = || Failure::settings(format!("{flag} must be a time such as 30d, 12h, 1h30m or 45s, not {text:?}"));
    let seconds = sum(text).filter(|total| (1..=3650 * 86_400).contains(total)).ok_or_else(wrong)?;
    Ok(seconds * 1_000_000)
}

/// The seconds of numbers with units, the largest unit first.
fn sum(text: &str) -> Option<i64> {
    let (mut total, mut rest) = (0_i64, text);
    for (unit, seconds) in [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)] {
        let Some((number, after)) = rest.split_once(unit) else { continue };
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let number: i64 = is_number.then(|| number.parse().ok())??;
        total = total.checked_add(number.checked_mul(seconds)?)?;
        rest = after;
    }
    rest.is_empty().then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse("--for", "30d").unwrap(), 30 * 86_400_000_000);
        assert_eq!(parse("--timeout", "45s").unwrap(), 45_000_000);
        assert_eq!(parse("--timeout", "1h30m").unwrap(), 5_400_000_000);
        assert_eq!(parse("--timeout", "1d2h3m4s").unwrap(), 93_784_000_000);
        for bad in ["30m1h", "1h1h", "1h30", "h30m", "+1h", "1 h"] {
            assert!(parse("--timeout", bad).is_err(), "{bad}");
        }
        for bad in ["", "d", "0d", "-1d", "30", "30y", "99999999999999d", "3é"] {
            assert!(parse("--for", bad).is_err(), "{bad}");
        }
    }
}
