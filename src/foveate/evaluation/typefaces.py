"""The fonts that ship in Python packages, split by family."""

from dataclasses import dataclass
from functools import cache
from typing import Final

from PIL import ImageFont

from foveate.evaluation.extras import package_file
from foveate.evaluation.splits import Split

__all__ = ["Font", "Typeface", "load_font", "typefaces"]

Font = ImageFont.FreeTypeFont
"""A font at one size."""


@dataclass(frozen=True)
class Typeface:
    """A family of one regular and one bold font. Families without a bold one have their regular font twice."""

    name: str
    split: Split
    package: str
    """The import name of the package that ships it."""
    regular: str
    """The path of the regular font in that package."""
    bold: str
    """The path of the bold font in that package."""
    weights: tuple[int, int] | None = None
    """Where both are one variable font: the regular and the bold weight, on the scale of CSS."""


def _matplotlib(name: str, regular: str, bold: str, split: Split = Split.TRAINING) -> Typeface:
    folder = "mpl-data/fonts/ttf"
    return Typeface(name, split, "matplotlib", f"{folder}/{regular}.ttf", f"{folder}/{bold}.ttf")


def _packed(name: str, split: Split, package: str, regular: str, bold: str | None = None) -> Typeface:
    return Typeface(name, split, package, f"files/{regular}", f"files/{bold or regular}")


def _variable(name: str, file: str) -> Typeface:
    path = f"files/{file}.ttf"
    package = "fontpkg_" + name.lower().replace(" ", "_")
    return Typeface(name, Split.TRAINING, package, path, path, weights=(400, 700))


def _pair(name: str, stem: str) -> Typeface:
    return _packed(
        name, Split.TRAINING, "fontpkg_" + name.lower().replace(" ", "_"), f"{stem}-Regular.ttf", f"{stem}-Bold.ttf"
    )


_TYPEFACES: Final = (
    _matplotlib("DejaVu Sans", "DejaVuSans", "DejaVuSans-Bold"),
    _matplotlib("DejaVu Serif", "DejaVuSerif", "DejaVuSerif-Bold"),
    _matplotlib("DejaVu Sans Mono", "DejaVuSansMono", "DejaVuSansMono-Bold"),
    _matplotlib("STIX", "STIXGeneral", "STIXGeneralBol"),
    _matplotlib("Computer Modern Roman", "cmr10", "cmb10"),
    _matplotlib("Computer Modern Sans", "cmss10", "cmss10"),
    _matplotlib("Computer Modern Typewriter", "cmtt10", "cmtt10"),
    _packed(
        "Source Sans Pro",
        Split.TRAINING,
        "font_source_sans_pro",
        "SourceSansPro-Regular.ttf",
        "SourceSansPro-Semibold.ttf",
    ),
    _packed("Manrope", Split.TRAINING, "font_manrope", "Manrope-Regular.ttf", "Manrope-Bold.ttf"),
    _packed(
        "Hanken Grotesk", Split.TRAINING, "font_hanken_grotesk", "HankenGrotesk-Regular.otf", "HankenGrotesk-Bold.otf"
    ),
    _packed("Fjalla One", Split.TRAINING, "font_fjallaone", "FjallaOne-Regular.ttf"),
    _packed("Fredoka One", Split.TRAINING, "font_fredoka_one", "FredokaOne-Regular.ttf"),
    _packed("Roboto", Split.TRAINING, "fontpkg_roboto", "Roboto[wdth,wght].ttf"),
    _packed("Inconsolata", Split.TRAINING, "fontpkg_inconsolata", "Inconsolata[wdth,wght].ttf"),
    _pair("Arvo", "Arvo"),
    _pair("Crimson Text", "CrimsonText"),
    _pair("IBM Plex Mono", "IBMPlexMono"),
    _pair("PT Sans", "PT_Sans-Web"),
    _pair("PT Serif", "PT_Serif-Web"),
    _pair("Space Mono", "SpaceMono"),
    _variable("Bitter", "Bitter[wght]"),
    _variable("Cabin", "Cabin[wdth,wght]"),
    _variable("DM Sans", "DMSans[opsz,wght]"),
    _variable("EB Garamond", "EBGaramond[wght]"),
    _variable("Fira Code", "FiraCode[wght]"),
    _variable("IBM Plex Sans", "IBMPlexSans[wdth,wght]"),
    _variable("Inter", "Inter[opsz,wght]"),
    _variable("Karla", "Karla[wght]"),
    _variable("Libre Baskerville", "LibreBaskerville[wght]"),
    _variable("Lora", "Lora[wght]"),
    _variable("Montserrat", "Montserrat[wght]"),
    _variable("Nunito", "Nunito[wght]"),
    _variable("Oswald", "Oswald[wght]"),
    _variable("Playfair Display", "PlayfairDisplay[wght]"),
    _variable("Raleway", "Raleway[wght]"),
    _variable("Rubik", "Rubik[wght]"),
    _variable("Source Code Pro", "SourceCodePro[wght]"),
    _variable("Work Sans", "WorkSans[wght]"),
    _packed("Lato", Split.TEST, "font_lato", "Lato-Regular.ttf", "Lato-Bold.ttf"),
    _packed("Caladea", Split.TEST, "font_caladea", "Caladea-Regular.ttf", "Caladea-Bold.ttf"),
    _packed(
        "Source Serif Pro",
        Split.TEST,
        "font_source_serif_pro",
        "SourceSerifPro-Regular.ttf",
        "SourceSerifPro-Bold.ttf",
    ),
    _packed("Open Sans", Split.TEST, "fontpkg_open_sans", "OpenSans[wdth,wght].ttf"),
    _packed("JetBrains Mono", Split.TEST, "fontpkg_jetbrains_mono", "JetBrainsMono[wght].ttf"),
)

_WEIGHT: Final = (b"Weight", "Weight")


@cache
def typefaces(split: Split) -> tuple[Typeface, ...]:
    """Return the families of one side: sans, serif and fixed-width ones on each."""
    return tuple(typeface for typeface in _TYPEFACES if typeface.split is split)


@cache
def load_font(typeface: Typeface, bold: bool, size_pixels: int) -> Font:
    """Return the font at a size (the em, as in CSS), with Pillow's own layout, which is the same on every machine.

    Raises:
        MissingExtraError: the package of the typeface is not installed.

    """
    file = package_file(typeface.package, typeface.bold if bold else typeface.regular)
    font = ImageFont.truetype(file, size_pixels, layout_engine=ImageFont.Layout.BASIC)
    if typeface.weights:
        weight = typeface.weights[bold]
        axes = font.get_variation_axes()
        font.set_variation_by_axes([weight if axis["name"] in _WEIGHT else axis["default"] or 0 for axis in axes])
    return font
