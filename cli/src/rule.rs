//! Partitioning rules as written on the command line: `prefix:N`, `ranges:KEY,KEY,..`,
//! `ranges-hex:DIGITS,DIGITS,..` and `explicit`.

use trine::{ByKey, Partitioning, PartitioningInfo};
use trine_workload::text::{hex, is_hidden, parse_hex};

/// Separates the keys of `ranges:`.
const SEPARATOR: char = ',';

/// The longest rule that a table shows with its keys.
const SHORT_CHARACTERS: usize = 40;

/// Parses the value of `--partition-by`.
pub(crate) fn parse(word: &str) -> Result<PartitioningInfo, String> {
    let wanted = || "give prefix:N, ranges:KEY,KEY,.., ranges-hex:DIGITS,DIGITS,.. or explicit".to_owned();
    if word == "explicit" {
        return Ok(PartitioningInfo::Explicit);
    }
    let (kind, rest) = word.split_once(':').ok_or_else(wanted)?;
    match kind {
        "prefix" => {
            let bytes = rest.parse().map_err(|_| format!("{rest:?} is no number of bytes"))?;
            Ok(PartitioningInfo::Prefix { bytes })
        }
        "ranges" => {
            let bounds = rest.split(SEPARATOR).map(|key| key.as_bytes().to_vec()).collect();
            Ok(PartitioningInfo::Ranges { bounds })
        }
        "ranges-hex" => {
            let key = |digits: &str| {
                parse_hex(digits.as_bytes())
                    .map_err(|fault| format!("{digits:?} is not hexadecimal: {fault}"))
            };
            let bounds = rest.split(SEPARATOR).map(key).collect::<Result<_, _>>()?;
            Ok(PartitioningInfo::Ranges { bounds })
        }
        _ => Err(wanted()),
    }
}

/// The rule in the form that [`parse`] reads.
pub(crate) fn text(rule: &PartitioningInfo) -> String {
    match rule {
        PartitioningInfo::Explicit => "explicit".to_owned(),
        PartitioningInfo::Prefix { bytes } => format!("prefix:{bytes}"),
        PartitioningInfo::Ranges { bounds } => match plain(bounds) {
            Some(keys) => format!("ranges:{}", keys.join(",")),
            None => format!("ranges-hex:{}", bounds.iter().map(|key| hex(key)).collect::<Vec<_>>().join(",")),
        },
        PartitioningInfo::Function { name, version } => format!("function {name}, version {version}"),
        _ => "a rule of a later release".to_owned(),
    }
}

/// The rule for a table: for many keys only their number.
pub(crate) fn short(rule: &PartitioningInfo) -> String {
    let text = text(rule);
    match rule {
        PartitioningInfo::Ranges { bounds } if text.chars().count() > SHORT_CHARACTERS => {
            format!("ranges of {} keys", bounds.len())
        }
        _ => text,
    }
}

/// The keys as text, if all of them can be typed as such.
fn plain(bounds: &[Vec<u8>]) -> Option<Vec<&str>> {
    let is_plain = |key: &&str| !key.chars().any(|one| one == SEPARATOR || is_hidden(one));
    bounds.iter().map(|key| std::str::from_utf8(key).ok().filter(is_plain)).collect()
}

/// The rule in the library's type, if it is a rule by key.
pub(crate) fn by_key(rule: &PartitioningInfo) -> Option<Partitioning<ByKey>> {
    match rule {
        PartitioningInfo::Prefix { bytes } => Some(Partitioning::prefix(*bytes)),
        PartitioningInfo::Ranges { bounds } => Some(Partitioning::ranges(bounds)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A printed rule can be parsed again.
    #[test]
    fn rules_are_read_as_they_are_shown() {
        for word in ["explicit", "prefix:7", "ranges:g", "ranges:g,m n,\u{e9}", "ranges-hex:00,612c,ff"] {
            assert_eq!(parse(word).map(|rule| text(&rule)).as_deref(), Ok(word));
        }
        assert_eq!(parse("ranges-hex:67,6d"), parse("ranges:g,m"));
        let many: Vec<String> = (10..60).map(|number| number.to_string()).collect();
        let rule = parse(&format!("ranges:{}", many.join(","))).expect("a rule");
        assert_eq!(short(&rule), "ranges of 50 keys");
    }

    /// Unknown rules and wrong digits are refused here; the library refuses wrong lengths and orders.
    #[test]
    fn unknown_rules_are_refused() {
        for word in ["", "prefix", "prefix:", "prefix:x", "prefix:-1", "ranges-hex:6", "hash:3", "ranges"] {
            assert!(parse(word).is_err(), "{word}");
        }
    }
}
