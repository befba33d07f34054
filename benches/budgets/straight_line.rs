//! The straight line through measured points, fitted by least squares.

/// The growth per unit of x; `None`: the points do not differ in x.
pub fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let (mut product, mut square) = (0.0, 0.0);
    for (x, y) in points {
        product += (x - mean_x) * (y - mean_y);
        square += (x - mean_x) * (x - mean_x);
    }
    (square > 0.0).then(|| product / square)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_that_of_the_line_and_noise_on_both_sides_does_not_tilt_it() {
        let exact = [(1.0, 5.0), (2.0, 7.0), (4.0, 11.0)];
        assert!((slope(&exact).expect("a slope") - 2.0).abs() < 1e-9);
        let noisy = [(0.0, 1.0), (1.0, -1.0), (2.0, -1.0), (3.0, 1.0)];
        assert!(slope(&noisy).expect("a slope").abs() < 1e-9);
        assert_eq!(slope(&[(3.0, 1.0), (3.0, 2.0)]), None);
        assert_eq!(slope(&[]), None);
    }
}
