//! Recognizes the digit in a picture: ./classify seven.pgm

mod digits;

use digits::{Network, Picture, SIZE};

fn read(path: &str) -> Result<Picture, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    bytes
        .strip_prefix(format!("P5 {SIZE} {SIZE} 255\n").as_bytes())
        .and_then(|pixels| pixels.try_into().ok())
        .ok_or(format!("{path}: not a PGM file of 28 x 28 pixels"))
}

fn main() -> Result<(), String> {
    let path = std::env::args().nth(1).ok_or("usage: classify PICTURE.pgm")?;
    let likely = Network::new()?.classify(&read(&path)?)?;
    let best = (0..10).max_by(|&a, &b| likely[a].total_cmp(&likely[b])).unwrap();
    println!("this is a {best} ({:.1} %)", 100.0 * likely[best]);
    Ok(())
}
