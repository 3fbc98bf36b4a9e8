//! A self-contained HTML page with all plots.

use super::Picture;
use crate::output::markup::escaped;

/// Formats a page with this title and these pictures as HTML.
pub fn page(title: &str, pictures: &[Picture]) -> String {
    let title = escaped(title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
         <style>body{{font-family:sans-serif;max-width:1000px;margin:2em auto;color:#222}}\
         svg{{max-width:100%;height:auto}}</style></head><body>\n<h1>{title}</h1>\n\
         <p>A band is the 95 % confidence interval of the median. Dashed lines are limits of the \
         machine without a fabric; docs/FABTESTS-REFERENCE.md describes each of them.</p>\n"
    );
    for picture in pictures {
        page += &format!(
            "<figure id=\"{}\">\n{}</figure>\n",
            picture.name,
            picture.chart.svg()
        );
    }
    page + "</body></html>\n"
}
