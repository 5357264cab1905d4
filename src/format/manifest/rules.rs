//! The bytes of partition rules, within a change of a manifest. Pure.

use crate::base::codec::{ByteReader, put_varint};
use crate::base::rule::{BOUNDS_MAX, KeyFunction, Rule};

use super::Decoded;

mod rule_kind {
    pub(super) const EXPLICIT: u8 = 1;
    pub(super) const PREFIX: u8 = 2;
    pub(super) const RANGES: u8 = 3;
    pub(super) const FUNCTION: u8 = 4;
}

pub(super) fn encode_rule(rule: &Rule, out: &mut Vec<u8>) {
    match rule {
        Rule::Explicit => out.push(rule_kind::EXPLICIT),
        Rule::Prefix(bytes) => out.extend_from_slice(&[rule_kind::PREFIX, *bytes]),
        Rule::Ranges(bounds) => {
            out.push(rule_kind::RANGES);
            put_varint(out, bounds.len() as u64);
            bounds.iter().for_each(|bound| encode_short_name(bound, out));
        }
        Rule::Function(KeyFunction { name, version, .. }) => {
            out.push(rule_kind::FUNCTION);
            out.extend_from_slice(&version.to_le_bytes());
            encode_short_name(name.as_bytes(), out);
        }
    }
}

/// Encodes the name of a partition, or a bound, which has the same length limit.
pub(super) fn encode_short_name(name: &[u8], out: &mut Vec<u8>) {
    out.push(u8::try_from(name.len()).expect("rules have names of at most 255 bytes"));
    out.extend_from_slice(name);
}

pub(super) fn decode_rule(reader: &mut ByteReader<'_>) -> Decoded<Rule> {
    let before = reader.clone();
    match reader.u8("the kind of rule")? {
        rule_kind::EXPLICIT => Ok(Rule::Explicit),
        rule_kind::PREFIX => {
            let (before, bytes) = (reader.clone(), reader.u8("the bytes of a prefix")?);
            Rule::prefix(bytes.into()).map_err(|_| before.malformed("the bytes of a prefix", 1, 0).into())
        }
        rule_kind::RANGES => decode_ranges(reader),
        rule_kind::FUNCTION => decode_function(reader),
        kind => Err(before.malformed("the kind of rule", rule_kind::EXPLICIT.into(), kind.into()).into()),
    }
}

fn decode_function(reader: &mut ByteReader<'_>) -> Decoded<Rule> {
    let version = reader.u32("the version of a function of keys")?;
    let (before, name) = (reader.clone(), decode_short_name(reader)?);
    match std::str::from_utf8(&name) {
        Ok(name) if !name.is_empty() => Ok(Rule::Function(KeyFunction::named(name, version))),
        _ => Err(before.malformed("the name of a function of keys", 1, name.len() as u64).into()),
    }
}

fn decode_ranges(reader: &mut ByteReader<'_>) -> Decoded<Rule> {
    let before = reader.clone();
    let count = reader.varint_up_to(BOUNDS_MAX as u64, "the number of bounds")?;
    let mut bounds = Vec::new();
    for _ in 0..count {
        bounds.push(decode_short_name(reader)?);
    }
    let rule = Rule::ranges(bounds);
    rule.map_err(|_| before.malformed("ascending bounds of partitions", count, 0).into())
}

pub(super) fn decode_short_name(reader: &mut ByteReader<'_>) -> Decoded<Box<[u8]>> {
    let bytes = reader.u8("the partition's name length")?;
    Ok(reader.bytes(bytes.into(), "the partition's name")?.into())
}
