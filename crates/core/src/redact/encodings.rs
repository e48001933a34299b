//! The encodings of a secret: plain, base64, hexadecimal, URL, JSON, and in a host name.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Shorter values are words and ports; masking them would only make text unreadable.
pub const SHORTEST: usize = 8;
/// Shorter pieces of base64 occur by chance.
const MIN_BASE64: usize = 10;

/// Returns whether a secret is too short to be searched for.
pub fn is_too_short(secret: &str) -> bool {
    secret.trim().chars().count() < SHORTEST
}

/// Returns every encoding of the secret, or nothing when it is too short to search for.
pub fn encodings(secret: &str) -> BTreeSet<String> {
    let secret = secret.trim();
    let mut forms = BTreeSet::new();
    if is_too_short(secret) {
        return forms;
    }
    forms.insert(secret.to_owned());
    for shift in 0..3 {
        let standard = base64_within(secret.as_bytes(), shift);
        if standard.len() >= MIN_BASE64 {
            forms.insert(standard.replace('+', "-").replace('/', "_"));
            forms.insert(standard);
        }
    }
    for digits in [hex(secret), hex(secret).to_uppercase()] {
        forms.insert(digits);
    }
    let url = percent(secret);
    forms.insert(url.replace("%20", "+"));
    forms.insert(lower_hex(&url));
    forms.insert(url);
    let json = serde_json::Value::from(secret).to_string();
    let json = json.strip_prefix('"').and_then(|json| json.strip_suffix('"')).unwrap_or(secret);
    forms.insert(json.replace('/', "\\/"));
    forms.insert(json.to_owned());
    // Host names are written in lower case. A capitalised word becomes an ordinary word there, so the secret must have
    // a digit too.
    if secret.contains(|c: char| c.is_ascii_uppercase()) && secret.contains(|c: char| c.is_ascii_digit()) {
        forms.insert(secret.to_ascii_lowercase());
    }
    forms
}

/// Returns the base64 digits of a secret inside encoded text: `shift` bytes come before it, and digits that mix with
/// unknown neighbours are left out.
fn base64_within(secret: &[u8], shift: usize) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bit = |at: usize| secret.get((at / 8).checked_sub(shift)?).map(|byte| usize::from(byte >> (7 - at % 8) & 1));
    let digits = (shift + secret.len()) * 8 / 6 + 1;
    (0..digits)
        .filter_map(|digit| {
            let value = (0..6).try_fold(0, |value, offset| Some(value << 1 | bit(digit * 6 + offset)?))?;
            Some(char::from(DIGITS[value]))
        })
        .collect()
}

fn hex(secret: &str) -> String {
    secret.bytes().fold(String::with_capacity(2 * secret.len()), |mut out, byte| {
        write!(out, "{byte:02x}").expect("writing to a String cannot fail");
        out
    })
}

fn percent(secret: &str) -> String {
    let mut out = String::with_capacity(secret.len());
    for byte in secret.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a String cannot fail");
        }
    }
    out
}

/// Turns `%2F` into `%2f`: both spellings occur.
fn lower_hex(url: &str) -> String {
    let mut parts = url.split('%');
    let first = parts.next().unwrap_or("").to_owned();
    parts.fold(first, |out, part| {
        let (hex, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        format!("{out}%{}{rest}", hex.to_lowercase())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_encodings() {
        let want = [
            // Plain, in JSON, with an escaped slash.
            "pa\"ss/wörd+1",
            "pa\\\"ss/wörd+1",
            "pa\\\"ss\\/wörd+1",
            // In URLs.
            "pa%22ss%2Fw%C3%B6rd%2B1",
            "pa%22ss%2fw%c3%b6rd%2b1",
            // Hexadecimal.
            "70612273732f77c3b672642b31",
            "70612273732F77C3B672642B31",
            // Base64 after 0, 1 and 2 bytes, in both alphabets.
            "cGEic3Mvd8O2cmQrM",
            "BhInNzL3fDtnJkKz",
            "wYSJzcy93w7ZyZCsx",
        ];
        let mut want: BTreeSet<String> = want.into_iter().map(str::to_owned).collect();
        let got = encodings("pa\"ss/wörd+1\n");
        want.extend(got.iter().filter(|form| form.contains('-') || form.contains('_')).cloned());
        assert_eq!(got, want);
        assert_eq!(encodings("short"), BTreeSet::new());
        for (secret, want) in [("Ab3dEf6hIj", true), ("Production", false), ("ab3def6hij", true)] {
            assert_eq!(encodings(secret).contains(&secret.to_ascii_lowercase()), want, "{secret}");
        }
    }
}
