"""Excel workbooks for tests, written by hand: what is in them is known to the letter."""

import datetime
import zipfile
from xml.sax.saxutils import escape, quoteattr

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_RELATIONS = f'<Relationships xmlns="{_PACKAGE}/relationships">'


class Fault(str):
    """An error in a cell, like #N/A."""


class Formula(str):
    """A formula that was never computed."""


def write_workbook(path, sheets):
    """Sheets by their names, each a list of rows of cells; None is an empty cell."""
    names = "".join(
        f'<sheet name={quoteattr(name)} sheetId="{i + 1}" r:id="r{i}"/>'
        for i, name in enumerate(sheets)
    )
    related = "".join(
        f'<Relationship Id="r{i}" Type="{_OFFICE}/worksheet" Target="worksheets/s{i}.xml"/>'
        for i in range(len(sheets))
    )
    styles = f'<Relationship Id="styles" Type="{_OFFICE}/styles" Target="styles.xml"/>'
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"
    files = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{kind}"/></Types>',
        "_rels/.rels": f'{_RELATIONS}<Relationship Id="r" Type="{_OFFICE}/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>{names}</sheets>'
        "</workbook>",
        "xl/_rels/workbook.xml.rels": f"{_RELATIONS}{related}{styles}</Relationships>",
        "xl/styles.xml": f'<styleSheet xmlns="{_MAIN}"><cellXfs count="2"><xf numFmtId="0"/>'
        '<xf numFmtId="14"/></cellXfs></styleSheet>',
    }
    for i, rows in enumerate(sheets.values()):
        lines = "".join(_row(r, row) for r, row in enumerate(rows, 1))
        files[f"xl/worksheets/s{i}.xml"] = (
            f'<worksheet xmlns="{_MAIN}"><sheetData>{lines}</sheetData></worksheet>'
        )
    with zipfile.ZipFile(path, "w") as file:
        for name, content in files.items():
            file.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{content}')


def _row(number, cells):
    inside = "".join(_cell(f"{_letters(p)}{number}", cell) for p, cell in enumerate(cells))
    return f'<row r="{number}">{inside}</row>'


def _letters(place):
    return (chr(64 + place // 26) if place >= 26 else "") + chr(65 + place % 26)


def _cell(place, value):
    if value is None:
        return ""
    if isinstance(value, bool):
        return f'<c r="{place}" t="b"><v>{int(value)}</v></c>'
    if isinstance(value, int | float):
        return f'<c r="{place}"><v>{value!r}</v></c>'
    if isinstance(value, datetime.date):
        return f'<c r="{place}" s="1"><v>{(value - datetime.date(1899, 12, 30)).days}</v></c>'
    if isinstance(value, Fault):
        return f'<c r="{place}" t="e"><v>{escape(value)}</v></c>'
    if isinstance(value, Formula):
        return f'<c r="{place}"><f>{escape(value)}</f></c>'
    text = escape(value)
    return f'<c r="{place}" t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>'
