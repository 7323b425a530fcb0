//! The check whether the bytes of an uploaded file are a wheel: the directory of its archive must
//! have the files of one.
//!
//! Nothing is unpacked here. Without this check, only the resolver would find out that a file is no
//! wheel, after it was stored.

/// The greatest size of all files of an uploaded wheel together, unpacked, in bytes.
const MAX_UNPACKED: u64 = 4 << 30;

/// The length in bytes of the fixed part of the end of an archive. The next constant is that of an
/// entry of its directory.
const END: usize = 22;
const ENTRY: usize = 46;

/// The length of the longest comment at the end of an archive, in bytes.
const MAX_COMMENT: usize = 65_535;

/// Checks that an archive is the wheel of a distribution, whose name and version are in the name of
/// the file.
pub(crate) fn check(content: &[u8], file: &str) -> Result<(), String> {
    let names = names(content).ok_or("it is not a complete zip archive")??;
    let mut parts = file.split('-');
    let name = parts.next().unwrap_or_default();
    let version = parts.next().unwrap_or_default();
    let folder = |path: &str| -> Option<String> {
        let (folder, file) = path.split_once('/')?;
        let found = folder.strip_suffix(".dist-info").filter(|_| file == "METADATA")?;
        Some(found.to_owned())
    };
    let Some(found) = names.iter().find_map(|path| folder(path)) else {
        return Err("it has no METADATA".to_owned());
    };
    if canonical(&found) != canonical(&format!("{name}-{version}")) {
        return Err(format!("it is the wheel of {}", found.escape_default()));
    }
    for needed in ["WHEEL", "RECORD"] {
        if !names.contains(&format!("{found}.dist-info/{needed}")) {
            return Err(format!("it has no {needed}"));
        }
    }
    Ok(())
}

fn canonical(text: &str) -> String {
    text.to_ascii_lowercase().replace(['-', '.'], "_")
}

/// Returns the names of the files in an archive; `None` if the content is no archive, or not a
/// whole one.
fn names(content: &[u8]) -> Option<Result<Vec<String>, String>> {
    let end = end(content)?;
    let count = usize::from(u16_at(end, 10)?);
    let size = u32_at(end, 12)? as usize;
    let begin = u32_at(end, 16)? as usize;
    let mut directory = content.get(begin..begin.checked_add(size)?)?;
    let mut names = Vec::with_capacity(count);
    let mut unpacked = 0_u64;
    for _ in 0..count {
        if directory.get(..4)? != b"PK\x01\x02" {
            return None;
        }
        unpacked += u64::from(u32_at(directory, 24)?);
        let length = usize::from(u16_at(directory, 28)?);
        let rest = usize::from(u16_at(directory, 30)?) + usize::from(u16_at(directory, 32)?);
        let name = directory.get(ENTRY..ENTRY + length)?;
        names.push(String::from_utf8_lossy(name).into_owned());
        directory = directory.get(ENTRY + length + rest..)?;
    }
    if unpacked > MAX_UNPACKED {
        return Some(Err("its files are larger than 4 GiB together".to_owned()));
    }
    Some(Ok(names))
}

/// Finds the end of an archive, which says where its directory is.
fn end(content: &[u8]) -> Option<&[u8]> {
    let last = content.len().checked_sub(END)?;
    let first = last.saturating_sub(MAX_COMMENT);
    let is_end = |at: &usize| {
        let comment = u16_at(&content[*at..], 20).map(usize::from);
        content[*at..].starts_with(b"PK\x05\x06") && comment == Some(last - at)
    };
    (first..=last).rev().find(is_end).map(|at| &content[at..])
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Makes an archive with these files, all empty but for their sizes in the directory.
#[cfg(test)]
pub(crate) fn made(files: &[(&str, u32)]) -> Vec<u8> {
    let mut directory = Vec::new();
    for (name, size) in files {
        let mut entry = vec![0; ENTRY];
        entry[..4].copy_from_slice(b"PK\x01\x02");
        entry[24..28].copy_from_slice(&size.to_le_bytes());
        entry[28..30].copy_from_slice(&(name.len() as u16).to_le_bytes());
        directory.extend(entry);
        directory.extend(name.as_bytes());
    }
    let mut end = vec![0; END];
    end[..4].copy_from_slice(b"PK\x05\x06");
    end[10..12].copy_from_slice(&(files.len() as u16).to_le_bytes());
    end[12..16].copy_from_slice(&(directory.len() as u32).to_le_bytes());
    directory.extend(end);
    directory
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "own_pkg-1.0-py3-none-any.whl";
    const WHOLE: [(&str, u32); 4] = [
        ("own_pkg/__init__.py", 10),
        ("own_pkg-1.0.dist-info/METADATA", 10),
        ("own_pkg-1.0.dist-info/WHEEL", 10),
        ("own_pkg-1.0.dist-info/RECORD", 10),
    ];

    #[test]
    fn a_wheel_is_known_by_its_directory() {
        let whole = made(&WHOLE);
        check(&whole, FILE).unwrap();
        check(&whole, "Own.Pkg-1.0-1-py3-none-any.whl").unwrap();
        let refused = |content: &[u8], file: &str| check(content, file).unwrap_err();
        assert!(refused(&whole, "other-1.0-py3-none-any.whl").contains("own_pkg-1.0"));
        assert!(refused(&whole, "own_pkg-1.1-py3-none-any.whl").contains("own_pkg-1.0"));
        assert!(refused(&made(&WHOLE[..2]), FILE).contains("WHEEL"));
        assert!(refused(&made(&WHOLE[..1]), FILE).contains("METADATA"));
        let bomb = [WHOLE[0], WHOLE[1], WHOLE[2], ("own_pkg-1.0.dist-info/RECORD", u32::MAX)];
        let bomb: Vec<_> = bomb.into_iter().chain([("x", u32::MAX)]).collect();
        assert!(refused(&made(&bomb), FILE).contains("4 GiB"));
    }

    #[test]
    fn what_is_no_archive_is_refused_wherever_it_ends() {
        let whole = made(&WHOLE);
        for length in 0..whole.len() {
            assert!(check(&whole[..length], FILE).is_err(), "{length}");
        }
        for content in [&b"content"[..], &[0; 100], b"PK\x05\x06"] {
            assert!(check(content, FILE).unwrap_err().contains("zip"));
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            let _ = check(&changed, FILE);
        }
    }
}
