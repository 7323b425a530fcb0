//! Sheets of workbooks: where the table is, its types, and files made to harm who reads them.

use std::fmt::Write as _;
use std::io::{Cursor, Write};
use std::path::Path;

use snowmelt_query::plan;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::formats::found;
use crate::runner::{located, refusal, run_failure};

const RELATIONS: &str = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";

/// Styles by index: none, a date, a date with a time, a time, a duration.
const STYLES: &str = "<styleSheet><numFmts><numFmt numFmtId=\"164\" formatCode=\"yyyy-mm-dd\\ hh:mm:ss\"/>\
    <numFmt numFmtId=\"165\" formatCode=\"[h]:mm\"/></numFmts><cellXfs><xf numFmtId=\"0\"/>\
    <xf numFmtId=\"14\"/><xf numFmtId=\"164\"/><xf numFmtId=\"21\"/><xf numFmtId=\"165\"/></cellXfs></styleSheet>";

fn archive(parts: &[(&str, String)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in parts {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// The parts of a workbook of these sheets, each given by its rows, and shared texts.
fn parts(sheets: &[(&'static str, &str)], texts: &str) -> Vec<(&'static str, String)> {
    const PATHS: [&str; 2] = ["xl/worksheets/sheet1.xml", "xl/worksheets/sheet2.xml"];
    let mut workbook = String::new();
    let mut relations = String::new();
    let mut parts = Vec::new();
    for (index, (name, rows)) in sheets.iter().enumerate() {
        let number = index + 1;
        write!(workbook, "<sheet name=\"{name}\" sheetId=\"{number}\" r:id=\"r{number}\"/>")
            .unwrap();
        write!(
            relations,
            "<Relationship Id=\"r{number}\" Type=\"{RELATIONS}/worksheet\" \
             Target=\"worksheets/sheet{number}.xml\"/>"
        )
        .unwrap();
        let sheet = format!("<worksheet><sheetData>{rows}</sheetData></worksheet>");
        parts.push((PATHS[index], sheet));
    }
    let root = format!(
        "<Relationships><Relationship Id=\"r1\" Type=\"{RELATIONS}/officeDocument\" \
         Target=\"xl/workbook.xml\"/></Relationships>"
    );
    let workbook =
        format!("<workbook xmlns:r=\"{RELATIONS}\"><sheets>{workbook}</sheets></workbook>");
    parts.push(("_rels/.rels", root));
    parts.push(("xl/workbook.xml", workbook));
    parts.push((
        "xl/_rels/workbook.xml.rels",
        format!("<Relationships>{relations}</Relationships>"),
    ));
    parts.push(("xl/styles.xml", STYLES.to_owned()));
    parts.push(("xl/sharedStrings.xml", format!("<sst>{texts}</sst>")));
    parts
}

fn put(path: &Path, sheets: &[(&'static str, &str)], texts: &str) {
    std::fs::write(path, archive(&parts(sheets, texts))).unwrap();
}

const PEOPLE: &str = "<row r=\"3\"><c r=\"B3\" t=\"s\"><v>0</v></c><c r=\"C3\" t=\"s\"><v>1</v></c>\
    <c r=\"D3\" t=\"inlineStr\"><is><t>born</t></is></c><c r=\"E3\" t=\"str\"><v>at</v></c>\
    <c r=\"F3\" t=\"str\"><v>mixed</v></c><c r=\"G3\" t=\"str\"><v>none</v></c></row>\
    <row r=\"4\"><c r=\"B4\"><v>1</v></c><c r=\"C4\" t=\"b\"><v>1</v></c>\
    <c r=\"D4\" s=\"1\"><v>45943</v></c><c r=\"E4\" s=\"2\"><v>45943.5</v></c>\
    <c r=\"F4\"><v>7</v></c></row>\
    <row r=\"5\"><c r=\"B5\"><v>2.5</v></c><c r=\"E5\" s=\"2\"><v>45944</v></c>\
    <c r=\"F5\" t=\"s\"><v>2</v></c><c r=\"J5\"><v>9</v></c></row>\
    <row r=\"7\"><c r=\"B7\" t=\"str\"><v>behind an empty row</v></c></row>";

const TEXTS: &str = "<si><t>id</t></si><si><t>ok</t></si>\
    <si><r><t>a &amp; </t></r><r><t xml:space=\"preserve\"> b</t></r></si>";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_is_found_in_its_sheet_with_the_types_of_its_cells() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let other = "<row r=\"1\"><c r=\"A1\"><v>5</v></c><c r=\"B1\" s=\"3\"><v>0.25</v></c>\
                 <c r=\"C1\" s=\"4\"><v>1.5</v></c></row>";
    put(&root.join("x.xlsx"), &[("People", PEOPLE), ("Other", other)], TEXTS);
    for (sql, expected) in [
        ("select * from 'x.xlsx'", {
            "|1.0|true|2025-10-13|2025-10-13T12:00:00|7||\n|2.5|||2025-10-14T00:00:00|a&b||"
        }),
        ("select count(*), sum(id) from read_xlsx('x.xlsx')", "|2|3.5|"),
        (
            "select typeof(id), typeof(ok), typeof(born), typeof(at), typeof(mixed), typeof(none) \
          from read_xlsx('x.xlsx') limit 1",
            "|DOUBLE|BOOLEAN|DATE|TIMESTAMP|VARCHAR|DOUBLE|",
        ),
        ("select * from read_xlsx('x.xlsx', sheet => 'OTHER')", "|5.0|06:00:00|1.5|"),
        ("select \"A1\" + 1 from read_xlsx('x.xlsx', sheet => 'Other', header => false)", {
            "|6.0|"
        }),
        ("select id from read_xlsx('x.xlsx', all_varchar => true) order by 1", "|1|\n|2.5|"),
        ("select count(*), count(id) from read_xlsx('x.xlsx', stop_at_empty => false)", "|4|3|"),
        ("select id, ok from read_xlsx('x.xlsx', range => 'B3:C4')", "|1.0|true|"),
        ("select * from read_xlsx('x.xlsx', range => 'J4:K', header => false)", "|||\n|9.0||"),
        ("select none || 'x' from read_xlsx('x.xlsx', empty_as_varchar => true) limit 1", "||"),
        ("select \"B2\", \"C2\" from read_xlsx('x.xlsx', range => 'B2:C3')", "|||\n|id|ok|"),
        (
            "select count(*) from read_xlsx(['x.xlsx', 'x.xlsx'], filename => true) group by filename",
            "|4|",
        ),
    ] {
        for workers in [1, 3] {
            assert_eq!(found(sql, root, workers).await, expected, "{sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_cells_name_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let rows = "<row r=\"1\"><c r=\"A1\" t=\"str\"><v>a</v></c><c r=\"B1\" t=\"str\"><v>b</v></c></row>\
                <row r=\"2\"><c r=\"A2\"><v>1</v></c><c r=\"B2\" t=\"e\"><v>#N/A</v></c></row>";
    put(&root.join("x.xlsx"), &[("S", rows)], "");
    let query = located("select * from 'x.xlsx'", root);
    let report = run_failure(plan(&query).await.unwrap(), &query).await;
    for part in ["SM-0119", "cell S!B2: it has the error #N/A", "ignore_errors => true"] {
        assert!(report.contains(part), "{report}");
    }
    assert_eq!(found("select a from 'x.xlsx'", root, 1).await, "|1.0|");
    let lenient = "select * from read_xlsx('x.xlsx', ignore_errors => true)";
    assert_eq!(found(lenient, root, 1).await, "|1.0||");
    for (call, part) in [
        ("sheet => 'T'", "its sheets are S"),
        ("range => 'A1'", "two cells"),
        ("delim => ';'", "has no option `delim`"),
    ] {
        let query = located(&format!("select * from read_xlsx('x.xlsx', {call})"), root);
        assert!(refusal(&query).await.contains(part), "{call}");
    }
    std::fs::write(root.join("y.xlsx"), "a,b\n1,2\n").unwrap();
    let report = refusal(&located("select * from 'y.xlsx'", root)).await;
    assert!(report.contains("SM-0106") && report.contains("y.xlsx"), "{report}");
}

/// Files that take much memory or time if they are believed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_workbooks_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let plain = "<row r=\"1\"><c r=\"A1\"><v>1</v></c></row>";
    let with = |name: &str, text: &str| {
        let mut parts = parts(&[("S", plain)], "");
        match parts.iter_mut().find(|(part, _)| *part == name) {
            Some((_, own)) => text.clone_into(own),
            None => panic!("{name}"),
        }
        archive(&parts)
    };
    let sheet = "xl/worksheets/sheet1.xml";
    let texts = "xl/sharedStrings.xml";
    let long = format!("<worksheet><sheetData><row><c><is><t>{}", "a".repeat(3 << 20));
    let styles = format!(
        "<styleSheet><fonts><font><name val=\"{}\"/></font></fonts><cellXfs>{}</cellXfs></styleSheet>",
        "x".repeat(1 << 20),
        "<xf fontId=\"0\"/>".repeat(10_000)
    );
    let entities = "<!DOCTYPE x [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;\">]>\
                    <worksheet><sheetData><row><c t=\"str\"><v>&b;</v></c></row></sheetData></worksheet>";
    for (bytes, part) in [
        (with(texts, "<sst uniqueCount=\"99999999999999\"><si/></sst>"), "more texts"),
        (with(sheet, &long), "more than 2 MiB"),
        (with("xl/styles.xml", &styles), "too many"),
        (with(sheet, entities), "declares entities"),
        (
            with(sheet, "<worksheet><sheetData><row><c></row></sheetData></worksheet>"),
            "well-formed",
        ),
        (
            with(
                sheet,
                "<worksheet><sheetData><row r=\"2\"><c r=\"A2\"><v>1</v></c></row>\
                      <row r=\"1\"><c r=\"A1\"><v>1</v></c></row></sheetData></worksheet>",
            ),
            "order",
        ),
        (
            with(
                sheet,
                "<worksheet><sheetData><row r=\"9999999\"><c r=\"A9999999\"><v>1</v></c></row>\
                      </sheetData></worksheet>",
            ),
            "outside",
        ),
        (with(sheet, &plain.replace("<v>1", "<v>1</c>")), "well-formed"),
    ] {
        std::fs::write(root.join("x.xlsx"), bytes).unwrap();
        let report = refusal(&located("select * from 'x.xlsx'", root)).await;
        assert!(report.contains("SM-0106") && report.contains(part), "{part}: {report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sheet_takes_no_memory_for_cells_that_it_does_not_have() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let rows = "<row r=\"1\"><c r=\"A1\"><v>1</v></c></row>\
                <row r=\"1048576\"><c r=\"XFD1048576\"><v>2</v></c></row>";
    let mut wide = parts(&[("S", rows)], "");
    wide[0].1 = wide[0].1.replace("<sheetData>", "<dimension ref=\"A1:XFD1048576\"/><sheetData>");
    std::fs::write(root.join("x.xlsx"), archive(&wide)).unwrap();
    assert_eq!(found("select * from 'x.xlsx'", root, 1).await, "|1.0|");
    let last = "select count(*), count(\"XFD1\") from read_xlsx('x.xlsx', range => 'XFC1:XFD1048576', header => false)";
    assert_eq!(found(last, root, 1).await, "|1048576|1|");
    // A text of which every row has a copy is sent in small batches.
    let many = "<row><c t=\"s\"><v>0</v></c></row>".repeat(300);
    let text = format!("<si><t>{}</t></si>", "x".repeat(1 << 20));
    put(&root.join("y.xlsx"), &[("S", many.as_str())], &text);
    let sql = "select count(*), max(length(\"A1\")) from read_xlsx('y.xlsx', header => false)";
    assert_eq!(found(sql, root, 1).await, "|300|1048576|");
}
