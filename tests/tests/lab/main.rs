//! The lab itself, its demo, the image, and the fuzz targets over their corpus.
#![expect(clippy::unwrap_used, reason = "helpers of tests: what cannot go on has failed")]

mod demo;
mod fuzz_corpus;
mod image;
mod lab;
