//! A picture of each figure over the size of the set, as SVG: what grows with the set is a straight line, what stays a level one.

use std::fmt::Write as _;

use super::figures::Curves;

/// Panels beside one another.
const COLUMNS: usize = 3;
/// Width and height of a panel with its margins, and of the part that is drawn in.
const PANEL: (f64, f64) = (320.0, 210.0);
const FIELD: (f64, f64) = (250.0, 140.0);
/// Where the part that is drawn in begins in a panel.
const MARGIN: (f64, f64) = (52.0, 32.0);
/// One for each set, then from the beginning; they differ in brightness too.
const COLOURS: [&str; 6] = ["#0b5cad", "#d1495b", "#2e8b57", "#e0a100", "#6a4c93", "#444444"];

/// Draws all figures of all sets, those of one name in one panel.
pub(super) fn svg(all: &[Curves]) -> String {
    let names = names(all);
    let legend = 18.0 * all.len() as f64 + 12.0;
    let rows = names.len().div_ceil(COLUMNS);
    let (width, height) = (PANEL.0 * COLUMNS as f64, legend + PANEL.1 * rows as f64);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (number, curves) in all.iter().enumerate() {
        let y = 18.0 * (number as f64 + 1.0);
        let (colour, title) = (colour(number), escaped(&curves.title));
        let _ = writeln!(text, "<text x=\"12\" y=\"{y}\" fill=\"{colour}\">— {title}</text>");
    }
    for (number, name) in names.iter().enumerate() {
        let (column, row) = (number % COLUMNS, number / COLUMNS);
        let (x, y) = (PANEL.0 * column as f64 + MARGIN.0, legend + PANEL.1 * row as f64 + MARGIN.1);
        let _ = writeln!(text, "<g transform=\"translate({x},{y})\">\n{}</g>", Panel::of(all, name).draw());
    }
    text + "</svg>\n"
}

/// Returns the names of all figures, each once, in the order of the first set that has them.
fn names(all: &[Curves]) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for figure in all.iter().filter_map(|curves| curves.points.first()).flat_map(|point| &point.figures) {
        if !names.contains(&figure.name) {
            names.push(figure.name);
        }
    }
    names
}

/// One figure of all sets that have it.
struct Panel<'a> {
    name: &'a str,
    /// The number of a set and its values, smallest size first; what was not measured is left out.
    lines: Vec<(usize, Vec<(u32, f64)>)>,
    bar: Option<f64>,
    most: (f64, f64),
}

impl<'a> Panel<'a> {
    fn of(all: &[Curves], name: &'a str) -> Self {
        let (mut lines, mut bar) = (Vec::new(), None);
        for (set, curves) in all.iter().enumerate() {
            let figures = curves.points.iter().flat_map(|point| {
                let own = point.figures.iter().filter(|figure| figure.name == name);
                own.map(|figure| (point.size, figure))
            });
            let mut line = Vec::new();
            for (size, figure) in figures {
                bar = bar.or_else(|| figure.bar.map(super::figures::Bar::value));
                line.push((size, figure.value));
            }
            line.retain(|(_, value)| value.is_finite());
            line.sort_by_key(|(size, _)| *size);
            if !line.is_empty() {
                lines.push((set, line));
            }
        }
        let points = || lines.iter().flat_map(|(_, line)| line);
        let widest = points().map(|(size, _)| f64::from(*size)).fold(1.0, f64::max);
        let highest = points().map(|(_, value)| *value).fold(0.0, f64::max);
        // A bar far above would press a figure flat, however it grows.
        let bar = bar.filter(|bar| *bar <= 2.0 * highest);
        let highest = bar.map_or(highest, |bar| bar.max(highest));
        // Room above the highest; a figure that is 0 throughout has a scale too.
        let most = (widest, if highest > 0.0 { highest * 1.1 } else { 1.0 });
        Self { name, lines, bar, most }
    }

    fn draw(&self) -> String {
        let (width, height) = FIELD;
        let mut text = format!(
            "<text x=\"0\" y=\"-12\" font-weight=\"bold\">{}</text>\n\
             <path d=\"M0,0V{height}H{width}\" fill=\"none\" stroke=\"#888\"/>\n",
            escaped(self.name)
        );
        for value in [0.0, self.most.1 / 2.0, self.most.1] {
            let y = self.at(0.0, value).1;
            let value = label(value);
            let _ = writeln!(text, "<text x=\"-6\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>", y + 4.0);
        }
        for size in self.sizes() {
            let x = self.at(f64::from(size), 0.0).0;
            let y = height + 16.0;
            let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{size}</text>");
        }
        if let Some(bar) = self.bar {
            let y = self.at(0.0, bar).1;
            let _ =
                writeln!(text, "<path d=\"M0,{y:.1}H{width}\" stroke=\"#888\" stroke-dasharray=\"4 3\"/>");
        }
        for (set, line) in &self.lines {
            let colour = colour(*set);
            let points = line.iter().map(|&(size, value)| self.at(f64::from(size), value));
            let path: Vec<String> = points.clone().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let path = path.join(" ");
            let _ = writeln!(text, "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\"/>");
            for (x, y) in points {
                let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>");
            }
        }
        text
    }

    /// Returns the sizes with a label: those that do not run into the one before.
    fn sizes(&self) -> Vec<u32> {
        let mut sizes: Vec<u32> =
            self.lines.iter().flat_map(|(_, line)| line.iter().map(|point| point.0)).collect();
        sizes.sort_unstable();
        let mut shown: Vec<u32> = Vec::new();
        for size in sizes {
            let x = |size: u32| self.at(f64::from(size), 0.0).0;
            if shown.last().is_none_or(|last| x(size) - x(*last) >= 28.0) {
                shown.push(size);
            }
        }
        shown
    }

    fn at(&self, size: f64, value: f64) -> (f64, f64) {
        (size / self.most.0 * FIELD.0, FIELD.1 - value / self.most.1 * FIELD.1)
    }
}

/// Writes three digits that count.
fn label(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn colour(set: usize) -> &'static str {
    COLOURS[set % COLOURS.len()]
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::curves;
    use super::super::figures::{Bar, Growth};
    use super::*;

    #[test]
    fn every_set_is_a_line_and_the_bar_a_dashed_one() {
        let one = curves(Growth::Total, Some(Bar::Below(5.0)), &[(0, 0.0), (1000, 10.0)]);
        let mut other = curves(Growth::Total, Some(Bar::Below(5.0)), &[(1000, 5.5), (0, 0.0)]);
        other.title = "a & b".to_owned();

        let text = svg(&[one, other]);

        // 11 is the top of the scale: 10 and 5.5 of it, 140 high.
        assert!(text.contains("points=\"0.0,140.0 250.0,12.7\""), "{text}");
        assert!(text.contains("points=\"0.0,140.0 250.0,70.0\""), "{text}");
        assert!(text.contains("M0,76.4H250") && text.contains("a &amp; b"), "{text}");
        assert_eq!(text.matches("<g ").count(), 1, "one figure, one panel");
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        let text = svg(&[curves(Growth::Free, None, &[(0, 1.0), (100, f64::NAN)])]);
        assert_eq!(text.matches("<circle").count(), 1);
        assert!(!text.contains("NaN"), "{text}");
        assert!(svg(&[]).ends_with("</svg>\n"));
        let nothing = svg(&[curves(Growth::Free, None, &[(0, 0.0), (0, 0.0)])]);
        assert!(!nothing.contains("NaN") && !nothing.contains("inf"), "{nothing}");
    }

    #[test]
    fn labels_of_sizes_do_not_run_into_one_another() {
        let drawn = curves(Growth::Free, None, &[(0, 1.0), (100, 1.0), (1000, 1.0), (3000, 1.0)]);
        assert_eq!(Panel::of(&[drawn], "time, s").sizes(), [0, 1000, 3000]);
    }
}
