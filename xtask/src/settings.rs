//! docs/SETTINGS.md: the settings table, read from the rows of the macro in `src/base/settings.rs`.
//!
//! It is not a Rust parser: a row is `name id = default, min, max, "about";`. If values have names, `["name
//! of 0", ..],` comes before the last part. Any other form is an error with its line.

use crate::source::{Source, Token, closing};
use crate::tree::Tree;

const PATH: &str = "src/base/settings.rs";

const HEAD: &str = "\
# Settings

A size is in bytes, shown with its unit: 1 MiB is 1,048,576. `set` takes names where values have them.

<!-- Written by `cargo xtask settings` from the table in `src/base/settings.rs`. Change that instead. -->
";

/// One row of the table.
#[derive(PartialEq, Eq, Debug)]
struct Row {
    name: String,
    default: u64,
    min: u64,
    max: u64,
    words: Vec<String>,
    about: String,
}

/// The text of docs/SETTINGS.md.
pub(crate) fn page(tree: &Tree) -> Result<String, String> {
    let source =
        tree.sources.iter().find(|source| source.path == PATH).ok_or(format!("there is no {PATH}"))?;
    let mut out = HEAD.to_string();
    for (title, rows) in tables(source)? {
        out += &format!(
            "\n## {title}\n\n| setting | default | from | to | what it does |\n|---|---|---|---|---|\n"
        );
        for row in rows {
            let shown = |value| row.shown(value);
            let (default, min, max) = (shown(row.default), shown(row.min), shown(row.max));
            let words: Vec<String> = row.words.iter().map(|word| format!("`{word}`")).collect();
            let words =
                if words.is_empty() { words.concat() } else { format!(" One of {}.", words.join(", ")) };
            out += &format!("| `{}` | {default} | {min} | {max} | {}{words} |\n", row.name, row.about);
        }
    }
    Ok(out)
}

/// Title and rows of every `settings! { .. }`.
fn tables(source: &Source) -> Result<Vec<(String, Vec<Row>)>, String> {
    let all = source.tokens();
    let mut out = Vec::new();
    for index in 0..all.len().saturating_sub(2) {
        let opens = all[index].text == "settings" && all[index + 1].text == "!" && all[index + 2].text == "{";
        let Some(colon) = all[index..].iter().position(|token| token.text == ":").map(|at| at + index) else {
            break;
        };
        if !opens {
            continue;
        }
        let end = closing(&all, index + 2);
        let title = strings(&source.raw[all[index].at..all[colon].at]);
        let mut rows = Vec::new();
        for tokens in all[colon + 1..end].split(|token| token.text == ";") {
            let [first, .., last] = tokens else { continue };
            let line = source.line_of(first.at);
            let wrong = || format!("{PATH}:{line} is not `name id = default, min, max, \"about\";`");
            rows.push(row(tokens, &source.raw[first.at..=last.at]).ok_or_else(wrong)?);
        }
        out.push((title.trim_end_matches('.').to_string(), rows));
    }
    if out.is_empty() { Err(format!("{PATH} has no settings! {{ .. }}")) } else { Ok(out) }
}

fn row(row: &[Token<'_>], raw: &str) -> Option<Row> {
    let [name, id, equals, values @ ..] = row else { return None };
    if equals.text != "=" || id.text.parse::<u16>().is_err() {
        return None;
    }
    let mut parts = values.split(|token| token.text == ",");
    let mut value = || parts.next().and_then(number);
    let (default, min, max) = (value()?, value()?, value()?);
    let at = |bracket: &str| row.iter().find(|token| token.text == bracket).map(|token| token.at - name.at);
    let (words, about) = match (at("["), at("]")) {
        (Some(open), Some(close)) => (&raw[open..close], &raw[close..]),
        _ => ("", raw),
    };
    let words = words.split('"').skip(1).step_by(2).map(str::to_string).collect();
    Some(Row { name: name.text.to_string(), default, min, max, words, about: strings(about) })
}

/// Evaluates a number, `a << b` or `a * b`.
fn number(expression: &[Token<'_>]) -> Option<u64> {
    let literal = |token: &Token<'_>| token.text.replace('_', "").trim_end_matches("u64").parse::<u64>().ok();
    match expression {
        [one] => literal(one),
        [one, left, right, other] if left.text == "<" && right.text == "<" => {
            literal(one)?.checked_shl(u32::try_from(literal(other)?).ok()?)
        }
        [one, times, other] if times.text == "*" => literal(one)?.checked_mul(literal(other)?),
        _ => None,
    }
}

/// The string literals of `raw`, joined; a line continued with `\` is one line.
fn strings(raw: &str) -> String {
    let mut out = String::new();
    for inside in raw.split('"').skip(1).step_by(2) {
        for (index, line) in inside.split("\\\n").enumerate() {
            out += if index == 0 { line } else { line.trim_start() };
        }
    }
    out
}

impl Row {
    /// A value in readable form: its name, or bytes with a unit.
    fn shown(&self, value: u64) -> String {
        if let Some(word) = usize::try_from(value).ok().and_then(|index| self.words.get(index)) {
            return format!("`{word}`");
        }
        let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        let unit = units.iter().find(|(_, shift)| value >= 1 << shift && value.is_multiple_of(1 << shift));
        match unit {
            Some((unit, shift)) if self.name.ends_with("_bytes") => format!("{} {unit}", value >> shift),
            _ => value.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(rows: &str) -> Result<String, String> {
        let text = format!(
            "macro_rules! settings {{ ($a:ident: $b:ident) => {{ }} }}\n\
             settings! {{ StoreSettings, Store, \"Of a store.\":\n{rows}\n}}\n"
        );
        page(&Tree::of(&[(PATH, &text)]))
    }

    /// Shifts, products and plain numbers are evaluated; bytes are shown with a unit, counts are not.
    #[test]
    fn rows_are_read() {
        let page = made(
            "memory_bytes 0 = 256 << 20, 32 * 1_024, 1 << 44, \"Memory; all, of \\\n   it.\";\nfiles 1 = 1024, 1, 2, \"F.\";",
        );
        let rows = "\n## Of a store\n\n| setting | default | from | to | what it does |\n|---|---|---|---|---|\n\
                    | `memory_bytes` | 256 MiB | 32 KiB | 16 TiB | Memory; all, of it. |\n| `files` | 1024 | 1 | 2 | F. |\n";
        assert_eq!(page, Ok(format!("{HEAD}{rows}")));
    }

    /// Named values are shown by their names.
    #[test]
    fn names_of_values_are_read() {
        let page = made("kind 1 = 1, 0, 1, [\"none\", \"bloom\"], \"What [it] is.\";").expect("a page");
        let row = "| `kind` | `bloom` | `none` | `bloom` | What [it] is. One of `none`, `bloom`. |\n";
        assert!(page.ends_with(row), "{page}");
    }

    /// A row of another form is an error with its line.
    #[test]
    fn other_forms_are_refused() {
        for bad in ["a 0 = f(1), 2, 3, \"b\";", "a = 1, 2, 3, \"b\";", "a 0 = 1, 2;"] {
            assert!(made(bad).is_err_and(|message| message.contains(":3 is not")), "{bad}");
        }
        assert!(page(&Tree::of(&[(PATH, "//! none")])).is_err());
    }
}
