//! Rows: accepted and refused input of each format, and exact positions.

use super::*;

fn shape(format: Format) -> Shape {
    Shape { format, key: None, value: None, header: true, separator: None }
}

fn with_file<R>(text: &[u8], work: impl FnOnce(&Path) -> R) -> R {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::io::Write::write_all(&mut file, text).expect("it takes the text");
    work(file.path())
}

fn all_rows(text: &[u8], shape: Shape) -> Result<Vec<Row>, Failure> {
    with_file(text, |path| {
        let mut rows = Rows::open(path, shape)?;
        std::iter::from_fn(|| rows.next().transpose()).collect()
    })
}

fn pairs(text: &str, shape: Shape) -> Vec<(String, String)> {
    let text_of = |bytes| String::from_utf8(bytes).expect("text in, text out");
    let pair = |row| match row {
        Row::Item(item) => (text_of(item.key), text_of(item.value)),
        Row::Bad { line, reason } => (line.to_string(), format!("bad: {reason}")),
    };
    all_rows(text.as_bytes(), shape).expect("the header is good").into_iter().map(pair).collect()
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

/// The columns of an item follow from the header, the options and the defaults.
#[test]
fn columns_are_chosen_by_name_or_default() {
    let csv = shape(Format::Csv);
    let text = "id,name\n1,Ann\n2,\"B, ob\"\n";
    let whole = [("1", r#"{"id":"1","name":"Ann"}"#), ("2", r#"{"id":"2","name":"B, ob"}"#)];
    assert_eq!(pairs(text, csv.clone()), owned(&whole));
    let named = Shape { key: Some("name".into()), value: Some("id".into()), ..csv.clone() };
    assert_eq!(pairs(text, named), owned(&[("Ann", "1"), ("B, ob", "2")]));
    assert_eq!(pairs("value,key\nv,k\n", csv.clone()), owned(&[("k", "v")]));
    let bare = Shape { header: false, ..csv.clone() };
    assert_eq!(pairs("a,b\n", bare.clone()), owned(&[("a", "b")]));
    assert_eq!(pairs("a,b,c\n", bare), owned(&[("a", r#"{"1":"a","2":"b","3":"c"}"#)]));
    let missing = Shape { key: Some("mail".into()), ..csv };
    let error = all_rows(text.as_bytes(), missing).expect_err("no such column").to_string();
    assert!(error.contains("no column \"mail\"; there are id, name"), "{error}");
}

/// CSV's corner cases: quotes, line breaks in fields, CRLF, blank lines, a mark at the start, no line break
/// at the end.
#[test]
fn csv_corners() {
    let csv = shape(Format::Csv);
    let text = "\u{feff}key,value\r\n\r\na,\"x\r\ny \"\"q\"\"\"\r\nb,5\" disk\r\nc,";
    assert_eq!(pairs(text, csv.clone()), owned(&[("a", "x\r\ny \"q\""), ("b", "5\" disk"), ("c", "")]));
    assert_eq!(pairs("key,value,hex\n41,4242,kv\n\"\",\"a\",\n", csv), owned(&[("A", "BB"), ("", "a")]));
}

/// Bad rows are reported with line and column, and do not change the next row. After bad quotes the next row
/// is the next line.
#[test]
fn bad_rows_do_not_spoil_the_next() {
    let text = "key,value\na,1\nb\nc,\"2\"x\nd,\"open\ne,5\nf,6,7\ng,\"7\"\nh,8\n";
    let expected = [
        ("a", "1"),
        ("3", "bad: 1 fields, where 2 are expected; the row ends at column 2"),
        ("4", "bad: field 2 (column 3) has text after its closing quote"),
        ("5", "bad: field 2 (column 3) has text after its closing quote"),
        ("e", "5"),
        ("7", "bad: 3 fields, where 2 are expected; the first too many begins at column 5"),
        ("g", "7"),
        ("h", "8"),
    ];
    assert_eq!(pairs(text, shape(Format::Csv)), owned(&expected));
    let text = "key,value\n\"a\nb\",\"x\n\nunclosed\nc,3";
    let expected = [
        ("2", "bad: field 2 (line 3, column 4) opens a quote that is never closed"),
        ("3", "bad: field 2 (column 4) opens a quote that is never closed"),
    ];
    assert_eq!(pairs(text, shape(Format::Csv))[..2], owned(&expected));
    let unclosed =
        ["2".to_string(), "bad: field 2 (column 3) opens a quote that is never closed".to_string()];
    for (text, rest) in
        [("key,value\na,\"", 0), ("key,value\na,\"\r\n", 0), ("key,value\r\na,\"1\r\nb,2\r\n", 1)]
    {
        let rows = pairs(text, shape(Format::Csv));
        assert_eq!(
            (<[String; 2]>::from(rows[0].clone()), rows.len()),
            (unclosed.clone(), 1 + rest),
            "{text:?}"
        );
    }
    let last = pairs(text, shape(Format::Csv)).pop();
    assert_eq!(last, owned(&[("c", "3")]).pop(), "rows behind an open quote were lost");
    let tsv = pairs("key\tvalue\na\nb\tc\td\n", shape(Format::Tsv));
    assert!(tsv[0].1.ends_with("the row ends at column 2"), "{tsv:?}");
    assert!(tsv[1].1.ends_with("the first too many begins at column 5"), "{tsv:?}");
}

/// The error at the opening of a refused file.
#[track_caller]
fn refusal(text: impl AsRef<[u8]>, shape: Shape) -> String {
    match all_rows(text.as_ref(), shape) {
        Err(error) => error.to_string(),
        Ok(rows) => panic!("{rows:?}"),
    }
}

/// Two columns of one name are refused if one of them would be lost. Earlier, the last one was stored, or the
/// first one as a key. Columns without a use are refused too.
#[test]
fn no_column_is_lost_unasked() {
    let csv = shape(Format::Csv);
    let keyed = |key: &str, value: Option<&str>| Shape {
        key: Some(key.into()),
        value: value.map(Into::into),
        ..shape(Format::Csv)
    };
    let twice = "id,name,name\n1,first,second\n";
    assert!(refusal(twice, csv.clone()).contains("line 1, the header: two columns are called \"name\""));
    assert!(refusal(twice, keyed("id", None)).contains("two columns are called \"name\""));
    assert!(refusal(twice, keyed("name", Some("id"))).contains("two columns are called \"name\""));
    assert!(refusal(twice, keyed("id", Some("name"))).contains("two columns are called \"name\""));
    assert!(refusal("key,key,value\na,b,1\n", csv.clone()).contains("two columns are called \"key\""));
    assert!(refusal("key,value,value\na,b,1\n", csv.clone()).contains("two columns are called \"value\""));
    assert!(refusal("key,value,note\na,1,n\n", csv).contains("the column \"note\" would be left out"));
    let others = "id,name,x,x\n1,Ann,2,3\n";
    assert_eq!(pairs(others, keyed("id", Some("name"))), owned(&[("1", "Ann")]));
    assert_eq!(pairs("key,value,note\na,1,n\n", keyed("key", Some("value"))), owned(&[("a", "1")]));
}

/// A file may use a bare CR as its one kind of line break. Earlier, such a file was one header without items.
#[test]
fn lines_end_in_one_way() {
    let expected = owned(&[("a", "1"), ("b", "2")]);
    for line_break in ["\n", "\r\n", "\r"] {
        for (format, lines) in [
            (Format::Csv, ["key,value", "a,1", "", "b,2"]),
            (Format::Csv, ["\"key\",value", "\"a\",\"1\"", "", "b,\"2\""]),
            (Format::Tsv, ["key\tvalue", "a\t1", "", "b\t2"]),
            (Format::Jsonl, ["", r#"{"key":"a","value":"1"}"#, "", r#"{"key":"b","value":"2"}"#]),
        ] {
            for last in [line_break, ""] {
                let text = lines.join(line_break) + last;
                assert_eq!(pairs(&text, shape(format)), expected, "{text:?}");
                let text = format!("\u{feff}{line_break}{text}{last}");
                assert_eq!(pairs(&text, shape(format)), expected, "{text:?}");
            }
        }
    }
    assert_eq!(pairs("key,value\ra,\"1\n\r\"\r", shape(Format::Csv)), owned(&[("a", "1\n\r")]));
    let fault = |text: &str, format| pairs(text, shape(format)).remove(0);
    let (line, reason) = fault("key,value\na,1\rb,2\n", Format::Csv);
    assert_eq!((line.as_str(), reason.contains("field 2 (column 3) has a carriage return")), ("2", true));
    let (line, reason) = fault("key,value\ra,1\nb,2\r", Format::Csv);
    assert_eq!((line.as_str(), reason.contains("field 2 (column 3) has a line feed")), ("2", true));
    let (line, reason) = fault("key\tvalue\na\t1\rb\n", Format::Tsv);
    assert_eq!(
        (line.as_str(), reason.contains("a carriage return stands within the line, at column 4")),
        ("2", true)
    );
    assert!(fault("key\tvalue\ra\t1\nb\r", Format::Tsv).1.contains("a line feed stands"));
    assert!(fault("{\"key\":\r1}{\n", Format::Jsonl).1.contains("not a JSON object"));
}

/// A line `sep=;` and --separator set the separator. A first row with another separator than the format's is
/// refused; earlier, such rows were one column.
#[test]
fn separators_are_as_they_are_meant() {
    let with = |separator: u8, header| Shape { separator: Some(separator), header, ..shape(Format::Csv) };
    let bare = |format| Shape { header: false, ..shape(format) };
    let expected = owned(&[("a;b", "1"), ("b", "2,5")]);
    let text = "key;value\n\"a;b\";1\nb;2,5\n";
    assert_eq!(pairs(text, with(b';', true)), expected);
    for first in ["sep=;\n", "SEP=;\r\n", "\"sep=;\"\n", "\u{feff}sep=;\n", "\nsep=;\n\n"] {
        assert_eq!(pairs(&format!("{first}{text}"), shape(Format::Csv)), expected, "{first:?}");
        assert_eq!(pairs(&format!("{first}{text}"), with(b';', true)), expected, "{first:?}");
        assert!(
            refusal(format!("{first}{text}"), with(b',', true)).contains("says that the separator is ';'")
        );
        assert!(
            refusal(format!("{first}{text}"), shape(Format::Tsv)).contains("says that the separator is ';'")
        );
    }
    assert_eq!(pairs("sep=\t\nkey\tvalue\na\t1\n", shape(Format::Tsv)), owned(&[("a", "1")]));
    assert_eq!(pairs("sep=,\na,1\nb\n", bare(Format::Csv))[1].0, "3", "lines count from the file's first");
    for text in [text, "key\tvalue\na\t1\n", "key|value\na|1\n", "id;a,b;c\n", "\n\nid;name\n1;a\n"] {
        assert!(refusal(text, shape(Format::Csv)).contains("give --separator '"), "{text:?}");
    }
    for text in ["1;2\n", "1;2,5\n2;3,5\n", "a\tb\n", "1;x;2,5\n"] {
        assert!(refusal(text, bare(Format::Csv)).contains("give --separator '"), "{text:?}");
    }
    assert!(
        refusal("key,value\na,1\n", shape(Format::Tsv)).contains("give --separator ',' or --separator 'tab'")
    );
    for (text, shape) in [
        ("a,x;y;z\n", bare(Format::Csv)),
        ("1;2,5\n", with(b',', false)),
        ("\"a;b\",1\n", bare(Format::Csv)),
        ("a;b\tx\n", bare(Format::Tsv)),
    ] {
        assert_eq!(pairs(text, shape).len(), 1, "{text:?}");
    }
}

/// UTF-16 and UTF-32 are refused, with a mark and without; NUL bytes in UTF-8 are data.
#[test]
fn other_encodings_are_refused() {
    let utf16 = |text: &str, is_little: bool| -> Vec<u8> {
        let bytes = |unit: u16| if is_little { unit.to_le_bytes() } else { unit.to_be_bytes() };
        text.encode_utf16().flat_map(bytes).collect()
    };
    for (format, text) in [
        (Format::Csv, "key,value\r\nä,1\r\n"),
        (Format::Csv, "1\n"),
        (Format::Csv, "中文,1\n文,2\n"),
        (Format::Tsv, "1\tЖ\n"),
        (Format::Jsonl, "{\"key\":\"a\",\"value\":\"1\"}\n"),
    ] {
        for (mark, is_little) in [("", true), ("", false), ("\u{feff}", true), ("\u{feff}", false)] {
            for header in [true, false] {
                let bytes = utf16(&format!("{mark}{text}"), is_little);
                let error = refusal(&bytes, Shape { header, ..shape(format) });
                assert!(error.contains("not UTF-8") || error.contains("NUL"), "{text:?}: {error}");
            }
        }
    }
    assert!(refusal(b"\0\0\xfe\xff\0\0\0a", shape(Format::Csv)).contains("UTF-32"));
    assert!(
        refusal(b"key,n\0me\na,1\n", shape(Format::Csv)).contains("the name of column 2 holds a NUL byte")
    );
    assert!(refusal(b"key,n\xffme\na,1\n", shape(Format::Csv)).contains("the name of column 2 is not UTF-8"));
    assert_eq!(pairs("key,value\n\0,a\0b\n", shape(Format::Csv)), owned(&[("\0", "a\0b")]));
}

/// Bytes that are not UTF-8 are stored unchanged from a column, and refused if they would have to be JSON.
#[test]
fn bytes_that_are_no_text() {
    let latin = b"key,value\nGr\xfcn,\xff\n";
    let rows = all_rows(latin, shape(Format::Csv)).expect("the header is good");
    assert!(matches!(&rows[..], [Row::Item(item)] if item.key == b"Gr\xfcn" && item.value == b"\xff"));
    let whole = Shape { key: Some("key".into()), ..shape(Format::Csv) };
    let rows = all_rows(latin, whole).expect("the header is good");
    assert!(
        matches!(&rows[..], [Row::Bad { line: 2, reason }] if reason.contains("is not UTF-8")),
        "{rows:?}"
    );
    let rows = all_rows(b"{\"key\":\"\xff\",\"value\":1}\n", shape(Format::Jsonl)).expect("no header");
    assert!(matches!(&rows[..], [Row::Bad { line: 1, reason }] if reason.contains("at column")), "{rows:?}");
}

/// An empty file, a file with only a header and a file of blank lines have no rows and no error.
#[test]
fn files_without_rows() {
    for text in ["", "\n\r\n", "\u{feff}", "key,value", "key,value\n", "key,value\r", "\u{feff}key,value\n\n"]
    {
        assert_eq!(pairs(text, shape(Format::Csv)), [], "{text:?}");
    }
    assert_eq!(pairs("\n", Shape { header: false, ..shape(Format::Csv) }), []);
    assert_eq!(pairs("key\tvalue", shape(Format::Tsv)), []);
    assert_eq!(pairs(" \n\n", shape(Format::Jsonl)), []);
    assert!(
        refusal("key,\"val\nue", shape(Format::Csv)).contains("the header: field 2 (column 5) opens a quote")
    );
    assert!(
        refusal("\na,\"1\"x\n", Shape { header: false, ..shape(Format::Csv) })
            .contains("line 2, the first row")
    );
}

/// Tab-separated fields keep quotes and unknown escapes, and encode line breaks as escapes.
#[test]
fn tsv_has_escapes_and_no_quotes() {
    let text = "key\tvalue\na\\tb\t\"x\\ny\nn\t\\N\\\n";
    assert_eq!(pairs(text, shape(Format::Tsv)), owned(&[("a\tb", "\"x\ny"), ("n", "\\N\\")]));
}

/// JSON lines: strings are text, numbers keep their digits, whole rows keep their bytes; errors name the
/// fault.
#[test]
fn json_lines() {
    let lines = shape(Format::Jsonl);
    let keyed = Shape { key: Some("id".into()), ..lines.clone() };
    let text =
        "{\"id\": 1.10, \"x\": [1]}\n\n{\"id\":\"\\u00e9\"}\n{\"x\":1}\n{\"id\":null}\n[1]\n{\"id\":\n";
    let rows = pairs(text, keyed.clone());
    assert_eq!(rows[..2], owned(&[("1.10", "{\"id\": 1.10, \"x\": [1]}"), ("é", "{\"id\":\"\\u00e9\"}")]));
    let faults = ["no field \"id\"", "cannot be a key", "not a JSON object", "not a JSON object"];
    for (row, fault) in rows[2..].iter().zip(faults) {
        assert!(row.1.contains(fault), "{row:?}");
    }
    let valued = Shape { value: Some("x".into()), ..keyed };
    assert_eq!(pairs("{\"id\": 1.10, \"x\": [1, 2]}", valued), owned(&[("1.10", "[1, 2]")]));
    assert_eq!(pairs("{\"key_hex\":\"41\",\"value_hex\":\"4242\"}", lines.clone()), owned(&[("A", "BB")]));
    for (line, fault) in [
        (
            r#"{"key":"a","value":1,"key":"b"}"#,
            "two fields are called \"key\"; the second one's value is at column 28",
        ),
        (r#"{"key":"a","x":1,"x":1}"#, "two fields are called \"x\""),
        (r#"{"key":"a","value":1,"\u006bey":"b"}"#, "two fields are called \"key\""),
        (r#"{"key":"a","value":1,"x":2}"#, "the field \"x\" would be left out"),
        (r#"{"key":"a","key_hex":"62","value":1}"#, "the field \"key_hex\" would be left out"),
        (r#"{"key":"a","value":1,"value_hex":"62"}"#, "the field \"value_hex\" would be left out"),
        ("{\"key\":\"\0\",\"value\":1}", "not a JSON object"),
    ] {
        let (number, reason) = pairs(line, lines.clone()).remove(0);
        assert!(number == "1" && reason.contains(fault), "{line}: {reason}");
    }
}

/// From the position after any row, the rest of the file reads the same, in all formats.
#[test]
fn positions_are_exact() {
    let csv = "key,value\r\na,\"1\n2\"\r\n\r\nbad\r\nc,3";
    let open = "key,value\n\u{feff}a,1\nb,\"\n\u{feff}c,3\n\n";
    let tsv = "key\tvalue\na\t1\nbad\nc\t3\n";
    let json = "{\"key\":\"a\",\"value\":\"1\"}\nbad\n{\"key\":\"c\",\"value\":\"3\"}\n";
    let bare = Shape { header: false, ..shape(Format::Csv) };
    let cases = [
        (shape(Format::Csv), csv.to_string()),
        (shape(Format::Csv), csv.replace("\r\n", "\r")),
        (shape(Format::Csv), format!("\u{feff}sep=,\r\n{csv}")),
        (shape(Format::Csv), open.to_string()),
        (bare, "\u{feff}a,1\nb,2,3\nc,4".to_string()),
        (shape(Format::Tsv), tsv.to_string()),
        (shape(Format::Tsv), tsv.replace('\n', "\r")),
        (shape(Format::Jsonl), json.to_string()),
    ];
    for (shape, text) in cases {
        let all = all_rows(text.as_bytes(), shape.clone()).expect("the header is good");
        assert_eq!(all.len(), 3, "{all:?}");
        with_file(text.as_bytes(), |path| {
            for passed in 0..=all.len() {
                let mut first = Rows::open(path, shape.clone()).expect("it opens");
                for row in &all[..passed] {
                    assert_eq!(first.next().expect("it reads").as_ref(), Some(row));
                }
                let mut second = Rows::open(path, shape.clone()).expect("it opens");
                second.seek(first.position()).expect("a file can seek");
                for row in &all[passed..] {
                    assert_eq!(second.next().expect("it reads").as_ref(), Some(row), "{text:?}");
                }
                assert_eq!(second.next().expect("it reads"), None);
                assert_eq!(second.position().offset, text.len() as u64);
            }
        });
        // A stream that gives one byte at a time has the same rows.
        let slow = OneByte(std::io::Cursor::new(text.into_bytes()));
        let mut rows =
            Rows::of(Input::stream(slow, ROW_BYTES_MAX), "a stream".to_string(), shape).expect("it opens");
        let streamed: Result<Vec<Row>, Failure> = std::iter::from_fn(|| rows.next().transpose()).collect();
        assert_eq!(streamed.expect("it reads"), all);
    }
}

struct OneByte(std::io::Cursor<Vec<u8>>);

impl std::io::Read for OneByte {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(&mut into[..1])
    }
}

/// A row over the limit is skipped whole, and its neighbours are read. Of a row with an open quote, the first
/// line is skipped.
#[test]
fn long_rows_are_passed_over() {
    let long = "x".repeat(600_000);
    let text = format!("key,value\na,1\n{long},2\nb,3\nc,\"{}\nd,4\n", "y,z\n".repeat(150_000));
    let rows = |format, text: String| {
        let input = Input::stream(std::io::Cursor::new(text.into_bytes()), 300_000);
        let mut rows = Rows::of(input, "a stream".to_string(), shape(format)).expect("it opens");
        let all = std::iter::from_fn(|| rows.next().transpose()).map(|row| row.expect("it reads"));
        all.collect::<Vec<Row>>()
    };
    let csv = rows(Format::Csv, text);
    assert_eq!(csv.len(), 4 + 150_000);
    assert!(
        matches!(&csv[1], Row::Bad { line: 3, reason } if reason.contains("is longer than")),
        "{:?}",
        csv[1]
    );
    assert!(matches!(&csv[2], Row::Item(item) if item.key == b"b" && item.at.lines == 3));
    assert!(matches!(&csv[3], Row::Bad { line: 5, reason } if reason.contains("is not closed within")));
    assert!(matches!(&csv[4], Row::Item(item) if item.key == b"y" && item.at.lines == 5));
    assert!(matches!(csv.last(), Some(Row::Item(item)) if item.key == b"d"));
    let tsv = rows(Format::Tsv, format!("key\tvalue\n{long}\t1\nb\t2\n{long}"));
    assert!(matches!(&tsv[0], Row::Bad { line: 2, .. }) && matches!(&tsv[2], Row::Bad { line: 4, .. }));
    assert!(matches!(&tsv[1], Row::Item(item) if item.key == b"b" && item.at.lines == 2));
}

/// Any byte, line breaks, quotes and separators survive each format's writer and reader.
#[test]
fn every_format_reads_its_own_rows() {
    let mut items: Vec<(Vec<u8>, Vec<u8>)> =
        (0..=255_u8).map(|byte| (vec![byte], vec![b'v', byte, b'"'])).collect();
    items.extend([
        (b"".to_vec(), b"".to_vec()),
        (b"a,b\t\"c\"\r\nd\\n".to_vec(), "\u{feff}grün\u{0}".as_bytes().to_vec()),
        (b"  spaces ".to_vec(), b"\n".to_vec()),
        (b"k".to_vec(), b"\\".to_vec()),
        ("\u{202e}gnp.exe".as_bytes().to_vec(), "\u{1b}[31m\u{85}\u{e0041}".as_bytes().to_vec()),
    ]);
    items.extend(
        ["=1+1", "+1", "-1", "@a", "\t=1", "\r=1", "\u{ff1d}1", "'=1", "'"]
            .map(|field| (format!("{field} key").into_bytes(), field.as_bytes().to_vec())),
    );
    let readers = [write::Reader::Program, write::Reader::Terminal, write::Reader::Spreadsheet];
    for (format, reader) in readers
        .into_iter()
        .flat_map(|reader| [Format::Csv, Format::Tsv, Format::Jsonl].map(|format| (format, reader)))
    {
        let (mut text, mut scratch) = (Vec::new(), Vec::new());
        write::write_header(format, &mut text).expect("a Vec takes every write");
        for (key, value) in &items {
            write::write_item((format, reader), (key, value), &mut scratch, &mut text)
                .expect("a Vec takes every write");
        }
        let rows = all_rows(&text, shape(format)).expect("the header is good");
        let read: Vec<(Vec<u8>, Vec<u8>)> = rows
            .into_iter()
            .map(|row| match row {
                Row::Item(item) => (item.key, item.value),
                Row::Bad { line, reason } => panic!("{format:?} line {line}: {reason}"),
            })
            .collect();
        assert_eq!(read, items, "{format:?}");
        let text = String::from_utf8(text).expect("every format is UTF-8");
        let is_safe = format == Format::Jsonl || reader != write::Reader::Program;
        assert_eq!(text.contains(crate::text::is_unsafe), !is_safe, "{format:?} for {reader:?}");
    }
}

/// In output for a spreadsheet, no field begins like a formula. A row whose field lacks its announced guard
/// is bad.
#[test]
fn formulas_are_guarded() {
    let (mut text, mut scratch) = (Vec::new(), Vec::new());
    let format = (Format::Csv, write::Reader::Spreadsheet);
    for field in ["=1+1", "+1", "-1", "@a", "\t=1", "\r=1", "\u{ff1d}1", "\u{1b}=1", "plain"] {
        write::write_item(format, (field.as_bytes(), field.as_bytes()), &mut scratch, &mut text)
            .expect("a Vec takes every write");
    }
    let mut reader = ::csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_slice());
    let records: Vec<_> = reader.records().map(|record| record.expect("it is good CSV")).collect();
    let starts =
        |field: &str| ['=', '+', '-', '@', '\t', '\r', '\u{ff1d}'].iter().any(|c| field.starts_with(*c));
    assert_eq!(records.iter().flatten().find(|field| starts(field)), None);
    assert_eq!(
        records.last().map(|record| record.iter().collect::<Vec<_>>()),
        Some(vec!["plain", "plain", ""])
    );
    assert_eq!(records[0].iter().collect::<Vec<_>>(), ["'=1+1", "'=1+1", "KV"]);
    let rows = all_rows(b"key,value,hex\na,b,K\n'a,b,VK\n", shape(Format::Csv)).expect("the header is good");
    assert!(rows.iter().all(|row| matches!(row, Row::Bad { .. })), "{} rows", rows.len());
}

/// An independent reader decodes the written CSV to the same fields.
#[test]
fn an_independent_reader_agrees() {
    let fields: [&[u8]; 5] = [b"plain", b"a,b", b"say \"hi\"", b"two\nlines\r\n", b" padded "];
    let mut row = Vec::new();
    for field in fields {
        super::csv::write_field(field, &mut row);
        row.push(b',');
    }
    row.extend_from_slice(b"end\n");
    let mut reader = ::csv::ReaderBuilder::new().has_headers(false).from_reader(row.as_slice());
    let read = reader.byte_records().next().expect("one row").expect("it is good CSV");
    assert!(read.iter().take(5).eq(fields));
}

/// The corpus of the fuzz target, in every format: each row takes bytes, all bytes are read, and a row read
/// again from its start is the same.
#[test]
fn the_fuzzed_corpus_has_no_findings() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/import");
    let mut rows_seen = 0;
    for entry in std::fs::read_dir(corpus).expect("it is in the tree") {
        let bytes = std::fs::read(entry.expect("an entry").path()).expect("a file");
        let text = bytes.get(1..).unwrap_or_default();
        for format in [Format::Csv, Format::Tsv, Format::Jsonl] {
            for header in [true, false] {
                rows_seen += check_positions(text, Shape { header, ..shape(format) });
            }
        }
    }
    assert!(rows_seen > 20, "{rows_seen}");
}

/// Random text that is nearly CSV has exact positions too.
#[test]
fn random_text_has_exact_positions() {
    let mut dice = crate::dice::Dice::new(34);
    let letters =
        ["a", "\"", "\"", ",", ",", "\n", "\n", "\r\n", "\r", "\u{feff}", ";", "\"\"", "a,\"", "\",b\n"];
    let mut rows_seen = 0;
    for _ in 0..1_500 {
        let length = dice.below(24);
        let letter = |_| letters[dice.below(letters.len() as u64) as usize];
        let text: String = (0..length).map(letter).collect();
        for header in [true, false] {
            rows_seen += check_positions(text.as_bytes(), Shape { header, ..shape(Format::Csv) });
            rows_seen += check_positions(text.as_bytes(), Shape { header, ..shape(Format::Tsv) });
        }
    }
    assert!(rows_seen > 1_000, "{rows_seen}");
}

/// Checks the positions of all rows and returns their count; 0 for a refused file.
fn check_positions(text: &[u8], shape: Shape) -> usize {
    with_file(text, |path| {
        let Ok(mut rows) = Rows::open(path, shape) else { return 0 };
        let (mut at, mut rows_seen) = (rows.position(), 0);
        while let Some(row) = rows.next().expect("a file is read") {
            let end = rows.position();
            assert!(end.offset > at.offset, "a row takes bytes: {text:?}");
            if let Row::Item(item) = &row {
                rows.seek(item.at).expect("a position it gave");
                assert_eq!(rows.next().expect("is read").as_ref(), Some(&row), "{text:?}");
                assert_eq!(rows.position(), end, "{text:?}");
            }
            at = end;
            rows_seen += 1;
        }
        assert_eq!(rows.position().offset, text.len() as u64, "{text:?}");
        rows_seen
    })
}
